"""Files are replaced at once, and nothing but regular files."""

import os
import socket
import stat
from pathlib import Path

import pytest

from remat_explorer.documents import read_json, write_text
from remat_explorer.errors import FileError, GraphError
from remat_explorer.files import require_writable


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    for content in ("made", "replaced"):
        write_text(link, content)
        assert link.is_symlink()
        assert target.read_text() == content
    assert [path.name for path in target.parent.iterdir()] == ["target.json"]


@pytest.mark.parametrize("allowed", [0o600, 0o640, 0o664])
def test_a_file_that_is_there_keeps_its_mode(tmp_path, allowed):
    path = tmp_path / "graph.json"
    path.write_text("old")
    path.chmod(allowed)
    write_text(path, "new")
    assert (path.read_text(), mode(path)) == ("new", allowed)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "graph.json", "new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "graph.json") == 0o666 & ~umask


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_is_there_keeps_its_owner(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    write_text(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def circle(path: Path) -> None:
    path.symlink_to(path)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a folder"),
        (pipe, "a pipe"),
        (listening, "a socket"),
        (circle, "a link that leads round in a circle"),
        (link_to_a_device, "a device"),
    ],
)
def test_what_is_no_regular_file_is_refused_by_name_and_stays(tmp_path, monkeypatch, make, kind):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = Path("x.json")
    make(path)
    before = path.lstat()
    for write in (require_writable, lambda path: write_text(path, "new")):
        with pytest.raises(FileError, match=f"cannot write 'x.json': it is {kind}, not a regular file"):
            write(path)
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert list(tmp_path.iterdir()) == [tmp_path / "x.json"]


def test_the_null_device_is_no_output():
    before = os.stat("/dev/null")
    with pytest.raises(FileError, match="it is a device"):
        write_text("/dev/null", "new")
    assert os.stat("/dev/null").st_rdev == before.st_rdev


@pytest.mark.parametrize("path", ["missing/x.json", "file/x.json", "zero\0byte"])
def test_a_folder_that_is_none_is_refused_by_name_before_and_when_it_is_written(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for write in (require_writable, lambda path: write_text(path, "new")):
        with pytest.raises(FileError) as caught:
            write(path)
        assert repr(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_pipe_and_a_device_are_refused_at_once_when_they_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(GraphError, match=f"'{path}': it is {kind}, not a regular file"):
            read_json(path, GraphError)


def test_a_file_beyond_the_size_that_is_read_is_refused_with_its_size(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as stream:
        stream.truncate(2**30 + 1)  # without a byte on the disk
    with pytest.raises(GraphError, match=r"it has 1.00 GiB, more than 1.00 GiB, the most that is read"):
        read_json(path, GraphError)


def test_a_name_of_the_greatest_length_can_be_written(tmp_path):
    path = tmp_path / ("ü" * 125 + ".json")
    assert write_text(path, "content").read_text() == "content"
