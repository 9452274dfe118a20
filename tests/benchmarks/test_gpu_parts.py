"""The parts of benchmarks/gpu.py: bounded in time, resumed, started again where they broke, and never silent."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu
import pytest
from gpu_parts import supervising
from gpu_parts.catalogue import PARTS, Part
from gpu_parts.record import PROBLEM, STOPPED, Record, records
from gpu_parts.supervising import python, run_part
from gpu_parts.tables import tables
from gpu_parts.work import Work

from remat_explorer.errors import RematError

PART = Part("memory", "a part", 1.0)
UNIT = "record.running = name; record.write()"


def program(path: Path, *lines: str) -> supervising.Command:
    """A process that works on the units a, b and c as ``lines`` say, unless they are done."""
    body = "".join(f"    {line}\n" for line in ("if record.is_done(name): continue", UNIT, *lines))
    text = (
        "from pathlib import Path; import os, time; from gpu_parts.record import Record\n"
        f"record = Record(Path({path.as_posix()!r}))\n"
        "record.names = ['a', 'b', 'c']\n"
        f"for name in record.names:\n{body}"
        "    record.units[name] = {'value': 1}; record.running = ''; record.write()\n"
    )
    return lambda part, seconds: python(f"exec({text!r})")


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.of(tmp_path, PART.name)


def options(folder: Path, **changes: Any) -> argparse.Namespace:
    given = {"out": folder, "minutes": 1.0, "part_minutes": None, "resume": True, "device": "cpu", "tiny": True}
    return argparse.Namespace(**given | {"bundle": None} | changes)


def test_the_minutes_of_all_parts_fit_into_half_an_hour_of_a_machine() -> None:
    assert sum(part.minutes for part in PARTS.values()) <= 27


def test_a_part_does_all_its_units(record: Record) -> None:
    found = run_part(PART, record, 60, program(record.path))
    assert list(found.units) == ["a", "b", "c"]
    assert (found.missing, found.words) == ([], "")


def test_a_part_over_its_time_is_stopped_and_says_so(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "GRACE", 0.0)
    found = run_part(PART, record, 2.0, program(record.path, "time.sleep(60 if name == 'b' else 0)"))
    assert found.units["a"] == {"value": 1}
    assert found.units["b"] == {STOPPED: "its time was over"}
    assert found.words.endswith("its time was over; not done: b, c")


def test_a_part_that_breaks_goes_on_with_the_next_unit(record: Record) -> None:
    found = run_part(PART, record, 60, program(record.path, "os.abort() if name == 'a' else None"))
    assert found.units["a"] == {PROBLEM: "its process ended with signal SIGABRT"}
    assert found.units["c"] == {"value": 1}
    assert found.words == ""


def test_a_part_that_cannot_begin_is_started_once_and_says_so(record: Record) -> None:
    starts: list[float] = []

    def broken(part: Part, seconds: float) -> list[str]:
        starts.append(seconds)
        return python("raise SystemExit(3)")

    found = run_part(PART, record, 60, broken)
    assert len(starts) == 1
    assert found.words.endswith("its process ended with exit code 3; not done: anything")


def test_what_is_done_is_not_done_again(record: Record, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    record.names, record.units = ["a"], {"a": {"value": 1}}
    record.write()
    monkeypatch.setattr(gpu, "run_part", lambda *_: pytest.fail("it ran again"))
    gpu.in_turn([PART], options(record.path.parent))
    assert capsys.readouterr().out == "memory: done before\n"


def test_a_part_whose_minutes_are_spent_is_not_begun_again(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    record.names, record.seconds = ["a"], 61.0
    record.write()
    monkeypatch.setattr(gpu, "run_part", lambda *_: pytest.fail("it ran"))
    gpu.in_turn([PART], options(record.path.parent))
    assert capsys.readouterr().out == "memory: not ended: the part's own minutes were over\n"


def test_results_of_another_device_are_not_resumed(record: Record) -> None:
    record.machine = {"asked": "cuda"}
    record.write()
    with pytest.raises(RematError, match=r"was measured on 'cuda', not 'cpu, tiny'"):
        gpu.in_turn([PART], options(record.path.parent))


def test_a_unit_that_fails_says_so_and_the_next_one_is_done(record: Record) -> None:
    def measure(name: str) -> dict[str, Any]:
        return {"value": 1 / (name != "a")}

    Work(record, 60.0, "cpu", True, None).each(["a", "b"], measure)
    found = Record(record.path)
    assert found.units["a"] == {PROBLEM: "ZeroDivisionError: division by zero"}
    assert found.units["b"]["value"] == 1


def test_units_that_are_done_are_not_measured_again(record: Record) -> None:
    record.units = {"a": {"value": 1}, "b": {STOPPED: "its time was over"}}
    measured: list[str] = []
    Work(record, 60.0, "cpu", True, None).each(["a", "b"], lambda name: {"value": measured.append(name)})
    assert measured == ["b"]
    assert STOPPED not in record.units["b"]


def test_no_unit_begins_after_the_time(record: Record) -> None:
    Work(record, -1.0, "cpu", True, None).each(["a"], lambda name: pytest.fail("it ran"))
    assert Record(record.path).missing == ["a"]


def test_a_folder_without_results_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RematError, match="holds no result"):
        records(tmp_path)


def test_tables_are_made_without_torch(record: Record, folder: Path) -> None:
    record.units = {"mlp": {"size": "batch 2", "runs": [{"share": "60%", "source": "solved here", "error": 0.001}]}}
    record.names, record.words = ["mlp", "vgg16"], "stopped after 9 s, its time was over; not done: vgg16"
    record.write()
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv[1:] = ['--tables', {str(record.path.parent)!r}]; "
        "import gpu; gpu.main(); print({'torch', 'plotly'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder.parent)
    lines = said.stdout.splitlines()
    assert lines[-1] == "set()", said.stderr
    assert any(line.startswith("| mlp ") and "+0.100%" in line for line in lines)
    assert "- stopped after 9 s, its time was over; not done: vgg16" in lines
    assert sum(line.startswith("- `") for line in lines) == len(PARTS) - 1, "parts that have not run"


def test_the_page_of_the_docs_is_made_from_the_results() -> None:
    page = Path(__file__).parents[2] / "docs" / "gpu.md"
    made = tables(records(page.parents[1] / "benchmarks" / "results" / "gpu"))
    assert page.read_text(encoding="utf-8") == made + "\n", "make it anew; the page says how"


def test_what_matters_most_fits_into_the_first_seven_minutes() -> None:
    first = list(PARTS.values())[:5]
    assert [part.name for part in first] == ["validation", "explorer", "training", "exactness", "convolutions"]
    assert sum(part.minutes for part in first) <= 7
