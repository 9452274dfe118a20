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


def test_a_file_that_is_there_keeps_its_owner_and_mode_and_a_new_one_has_what_the_umask_leaves(tmp_path):
    path = tmp_path / ("ü" * 125 + ".json")  # of the greatest length
    path.write_text("old")
    if os.geteuid() == 0:  # only root can give files away
        os.chown(path, 1234, 2345)
    path.chmod(0o640)
    before = path.stat()
    write_text(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o640)
    assert (path.stat().st_uid, path.stat().st_gid) == (before.st_uid, before.st_gid)
    before = os.umask(0o027)
    try:
        assert mode(write_text(tmp_path / "new.json", "new")) == 0o640
        os.umask(0o077)
        assert mode(write_text(tmp_path / "newer.json", "new")) == 0o600
    finally:
        os.umask(before)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a pipe"),
        (listening, "a socket"),
        (lambda path: path.symlink_to(path), "a link that leads round in a circle"),
        (lambda path: path.symlink_to("/dev/null"), "a device"),
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


@pytest.mark.parametrize("path", ["missing/x.json", "file/x.json", "zero\0byte"])
def test_a_folder_that_is_none_is_refused_by_name_before_and_when_it_is_written(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for write in (require_writable, lambda path: write_text(path, "new")):
        with pytest.raises(FileError) as caught:
            write(path)
        assert repr(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_pipe_a_device_and_a_file_beyond_the_size_that_is_read_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(GraphError, match=f"'{path}': it is {kind}, not a regular file"):
            read_json(path, GraphError)
    path = tmp_path / "large.json"
    with path.open("wb") as stream:
        stream.truncate(2**30 + 1)  # without a byte on the disk
    with pytest.raises(GraphError, match=r"it has 1.00 GiB, more than 1.00 GiB, the most that is read"):
        read_json(path, GraphError)
