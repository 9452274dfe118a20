"""The folder of the machine code: it cannot fail, and what others put there is not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remat_explorer import machine_code

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import doubled
print(doubled.double(21), sum(doubled.double.stats.cache_hits.values()))
"""
FUNCTION = """
from remat_explorer.machine_code import entry

@entry
def double(x):
    return 2 * x
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # bytes, as if the disk were full


def run(folder: Path, before: str = "") -> tuple[int, int]:
    """Result and cache hits of a small function in a process of its own."""
    if not (folder / "doubled.py").exists():  # a newer file is compiled anew
        (folder / "doubled.py").write_text(FUNCTION)
    code = before + PROGRAM.format(folder=str(folder))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    result, hits = map(int, ran.stdout.split())
    return result, hits


def kept(folder: Path, ending: str) -> list[Path]:
    return list((folder / "kept" / "compiled").glob(f"*/*/doubled.*{ending}"))


def test_damaged_machine_code_is_compiled_again_and_replaced(tmp_path: Path) -> None:
    assert (run(tmp_path), run(tmp_path)) == ((42, 0), (42, 1))
    for ending, content in ((".nbi", b"\x80\x04half"), (".nbc", b"")):
        (file,) = kept(tmp_path, ending)
        file.write_bytes(content)
        assert (run(tmp_path), run(tmp_path)) == ((42, 0), (42, 1)), (ending, content)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes are those of Linux")
def test_a_disk_without_room_for_machine_code_costs_nothing_but_time(tmp_path: Path) -> None:
    assert (run(tmp_path, LIMITED), run(tmp_path, LIMITED)) == ((42, 0), (42, 0))
    assert (run(tmp_path), run(tmp_path)) == ((42, 0), (42, 1))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users are those of Unix")
def test_a_folder_that_others_can_write_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    (index,) = kept(tmp_path, ".nbi")
    place = index.parents[1]
    assert machine_code.is_own(place)
    for folder in (place, place.parent):
        mode = folder.stat().st_mode
        folder.chmod(0o777)
        assert not machine_code.is_own(place)
        assert run(tmp_path) == (42, 0)
        folder.chmod(mode)
    assert run(tmp_path) == (42, 1)
    mine = os.stat

    class Others:
        """What `os.stat` says, but for the owner."""

        def __init__(self, state: os.stat_result) -> None:
            self.st_mode, self.st_uid = state.st_mode, os.geteuid() + 1

    for others in (place, place.parent, index):  # a file in a folder of one's own, too
        with monkeypatch.context() as patch:
            patch.setattr(
                Path, "stat", lambda path, others=others, **given: (Others if path == others else _same)(mine(path))
            )
            assert not machine_code.is_own(place), others
    assert machine_code.is_own(place)


def _same(state: os.stat_result) -> os.stat_result:
    return state
