"""benchmarks/gpu.py: its parts, bounded, resumed and never silent; and its bundle, with wheels and schedules."""

import argparse
import dataclasses
import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu
import pytest
from gpu_parts import schedules, supervising, wheels
from gpu_parts.catalogue import PARTS, Part
from gpu_parts.marked_tests import marked_files
from gpu_parts.record import PROBLEM, STOPPED, Record, records
from gpu_parts.schedules import FROM_BUNDLE, Given, Schedules, on_graph
from gpu_parts.solved_here import captured
from gpu_parts.supervising import python, run_part
from gpu_parts.tables import tables
from gpu_parts.work import Work
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph

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


def test_a_part_over_its_time_is_stopped_and_says_so(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, wait = [0.0], subprocess.Popen.wait

    def until_the_second_unit(process: subprocess.Popen, timeout: float | None = None) -> int:
        if timeout is None:
            return wait(process)
        while Record(record.path).running != "b":
            assert process.poll() is None
            time.sleep(0.02)
        clock.append(timeout)
        raise subprocess.TimeoutExpired("b", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", until_the_second_unit)
    monkeypatch.setattr(supervising, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    found = run_part(PART, record, 600, program(record.path, "time.sleep(600 if name == 'b' else 0)"))
    assert found.units["a"] == {"value": 1}
    assert found.units["b"] == {STOPPED: "its time was over"}
    assert found.words.endswith("its time was over; not done: b, c")


def test_a_part_that_breaks_goes_on_with_the_next_unit(record: Record) -> None:
    found = run_part(PART, record, 600, program(record.path, "os.abort() if name == 'a' else None"))
    assert found.units["a"] == {PROBLEM: "its process ended with signal SIGABRT"}
    assert found.units["c"] == {"value": 1}
    assert found.words == ""


def test_a_part_that_cannot_begin_says_so(record: Record) -> None:
    found = run_part(PART, record, 600, lambda part, seconds: python("raise SystemExit(3)"))
    assert found.words.endswith("its process ended with exit code 3; not done: anything")


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"names": ["a"], "units": {"a": {"value": 1}}}, "memory: done before\n"),
        ({"names": ["a"], "seconds": 61.0}, "memory: not ended: the part's own minutes were over\n"),
    ],
)
def test_a_part_that_is_done_or_whose_minutes_are_spent_is_not_begun_again(
    record: Record, known: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name, entry in known.items():
        setattr(record, name, entry)
    record.write()
    monkeypatch.setattr(gpu, "run_part", lambda *_: pytest.fail("it ran"))
    gpu.in_turn([PART], options(record.path.parent))
    assert capsys.readouterr().out == said
    record.machine = {"asked": "cuda"}
    record.write()
    with pytest.raises(RematError, match=r"was measured on 'cuda', not 'cpu, tiny'"):
        gpu.in_turn([PART], options(record.path.parent))


def test_a_unit_that_fails_says_so_and_the_next_one_is_done_unless_it_was_done_before(record: Record) -> None:
    def measure(name: str) -> dict[str, Any]:
        return {"value": 1 / (name != "a")}

    record.units = {"b": {STOPPED: "its time was over"}, "c": {"value": 3}}
    Work(record, 60.0, "cpu", True, None).each(["a", "b", "c"], measure)
    found = Record(record.path)
    assert found.units["a"] == {PROBLEM: "ZeroDivisionError: division by zero"}
    assert found.units["b"]["value"] == 1
    assert STOPPED not in found.units["b"]
    assert found.units["c"] == {"value": 3}


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


ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
THERE = {"numpy", "narwhals", "packaging", "psutil", "pygments", "typing-extensions"}  # where PyTorch is
UNUSED = {"cbcbox", "jupyterlab_widgets", "widgetsnbextension"}  # HiGHS solves; no page is shown


def required(name: str) -> set[str]:
    """What a package needs on this system, without extras."""
    needs = [Requirement(one) for one in importlib.metadata.requires(name) or []]
    return {canonicalize_name(one.name) for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})}


def test_the_wheels_have_the_versions_of_the_constraints() -> None:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    assert [f"{name}=={version}" for name, version in wheels.versions(CONSTRAINTS).items()] == [
        next(line for line in lines if line.startswith(f"{name}==")) for name in wheels.NEEDED
    ]


def test_what_a_wheel_needs_is_a_wheel_too() -> None:
    carried = {canonicalize_name(name) for name in (*wheels.NEEDED, *THERE, *UNUSED)}
    for name in wheels.NEEDED:
        assert name.startswith("nvidia") or required(name) <= carried, name


WITHOUT_TOOLS = """
import sys
for name in ("axe_playwright_python", "dask", "hypothesis", "nbmake", "notebook", "playwright", "psutil", "yaml"):
    sys.modules[name] = None
import pytest
sys.exit(pytest.main(["-q", "--collect-only", "-m", "gpu", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.thorough
def test_the_tests_marked_gpu_are_found_where_the_tools_of_other_tests_are_not_installed() -> None:
    files = [str(path.relative_to(ROOT)) for path in marked_files()]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", WITHOUT_TOOLS, *files]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert {line.partition("::")[0] for line in found.stdout.splitlines() if "::" in line} == set(files)


def all_kept(graph: Graph) -> rx.Solution:
    return rx.solve(graph, "100%", "checkpoint-all")


def with_workspace(graph: Graph, count: int) -> Graph:
    ways = [dataclasses.replace(node.default, cost=3.0, workspace=count) for node in graph.operations]
    pairs = zip(graph.operations, ways, strict=True)
    return dataclasses.replace(
        graph, operations=tuple(dataclasses.replace(node, implementations=(way,)) for node, way in pairs)
    )


def test_a_schedule_of_the_bundle_is_used_where_the_structure_is_the_same(tmp_path: Path) -> None:
    graph = rx.linear(8)
    document = {"structure": graph.structure, "solutions": {"100%": all_kept(graph).to_document()}}
    schedules.write_bundled(schedules.file_of(tmp_path, "a chain"), document)
    measured = with_workspace(graph, 2)
    found = Schedules(tmp_path, 1.0).of("a chain", measured, ("100%",))["100%"]
    assert isinstance(found, Given)
    assert found.source == FROM_BUNDLE
    assert found.solution.peak == all_kept(measured).peak
    assert found.solution.cost == 3.0 * measured.n
    alone = on_graph(all_kept(rx.linear(8)).to_document(), measured)  # without a budget: at its own peak
    assert alone.budget == alone.peak == all_kept(measured).peak


@pytest.mark.thorough  # as test_without_a_device shows of any model
def test_graphs_of_the_bundle_have_the_kernels_of_the_device_that_runs_them() -> None:
    for_gpu, for_cpu = (captured("llama 1B", tiny=True, device=device)[0] for device in ("cuda", "cpu"))
    assert [graph.options and graph.options.kernels for graph in (for_gpu, for_cpu)] == ["sm_90", None]
    assert for_gpu.structure != for_cpu.structure  # attention in half precision
