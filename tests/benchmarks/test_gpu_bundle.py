"""The bundle of benchmarks/gpu_bundle.py: its wheels, its size, its command, and which of its schedules are used."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_bundle
import pytest
from gpu_parts import schedules, wheels
from gpu_parts.marked_tests import marked_files
from gpu_parts.schedules import FROM_BUNDLE, Given, Schedules, on_graph, packed_graph, unpacked
from gpu_parts.solved_here import captured
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import remat_explorer as rx
from remat_explorer.errors import RematError, SolverError
from remat_explorer.graph import Graph

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


@pytest.mark.parametrize("name", [name for name in wheels.NEEDED if not name.startswith("nvidia")])
def test_what_a_wheel_needs_is_a_wheel_too(name: str) -> None:
    carried = {canonicalize_name(name) for name in (*wheels.NEEDED, *THERE, *UNUSED)}
    assert required(name) <= carried


def test_a_package_without_a_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text("mip==2.0.0\n")
    with pytest.raises(RematError, match="has no version of highspy, cffi"):
        wheels.versions(path)


WITHOUT_TOOLS = """
import sys
for name in ("axe_playwright_python", "dask", "hypothesis", "nbmake", "notebook", "playwright", "psutil", "yaml"):
    sys.modules[name] = None
import pytest
sys.exit(pytest.main(["-q", "--collect-only", "-m", "gpu", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_the_tests_marked_gpu_are_found_where_the_tools_of_other_tests_are_not_installed() -> None:
    files = [str(path.relative_to(ROOT)) for path in marked_files()]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", WITHOUT_TOOLS, *files]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert {line.partition("::")[0] for line in found.stdout.splitlines() if "::" in line} == set(files)


def test_a_bundle_above_its_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "one.whl").write_bytes(bytes(2048))
    gpu_bundle.require_small(tmp_path)
    monkeypatch.setattr(gpu_bundle, "LARGEST", 2047)
    with pytest.raises(RematError, match=r"2.00 KiB, more than 2.00 KiB"):
        gpu_bundle.require_small(tmp_path)


def test_the_command_is_one_line_that_names_the_script() -> None:
    words = shlex.split(gpu_bundle.command(ROOT / ".bundle"))
    assert words == ["bash", ".bundle/run_here.sh", "${OUT:-gpu_results}"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    graph = rx.linear(8)
    document = {"structure": graph.structure, "solutions": {"100%": all_kept(graph).to_document()}}
    schedules.write_bundled(schedules.file_of(tmp_path, "a chain"), document)
    return tmp_path


def all_kept(graph: Graph) -> rx.Solution:
    return rx.solve(graph, "100%", "checkpoint-all")


def with_workspace(graph: Graph, count: int) -> Graph:
    ways = [dataclasses.replace(node.default, cost=3.0, workspace=count) for node in graph.operations]
    pairs = zip(graph.operations, ways, strict=True)
    return dataclasses.replace(
        graph, operations=tuple(dataclasses.replace(node, implementations=(way,)) for node, way in pairs)
    )


def test_a_schedule_of_the_bundle_is_used_where_the_structure_is_the_same(bundle: Path) -> None:
    measured = with_workspace(rx.linear(8), 2)
    found = Schedules(bundle, 1.0).of("a chain", measured, ("100%",))["100%"]
    assert isinstance(found, Given)
    assert found.source == FROM_BUNDLE
    assert found.solution.peak == all_kept(measured).peak
    assert found.solution.cost == 3.0 * measured.n


@pytest.mark.parametrize(
    ("graph", "model", "why"),
    [
        (rx.linear(9), "a chain", "the graph captured here has another structure"),
        (rx.linear(8), "another", "the bundle has none"),
    ],
    ids=["another structure", "another model"],
)
def test_why_a_schedule_of_the_bundle_is_not_used(bundle: Path, graph: Graph, model: str, why: str) -> None:
    known = schedules.read_bundled(bundle, model)
    assert Schedules(bundle, 1.0)._bundled(known, graph, "100%") == (None, why)


def test_a_schedule_of_the_bundle_without_a_budget_is_at_its_own_peak(bundle: Path) -> None:
    document = all_kept(rx.linear(8)).to_document()
    measured = with_workspace(rx.linear(8), 5)
    found = on_graph(document, measured)
    assert found.budget == found.peak == all_kept(measured).peak


def test_graphs_of_the_bundle_have_the_kernels_of_the_device_that_runs_them() -> None:
    for_gpu, for_cpu = (captured("llama 1B", tiny=True, device=device)[0] for device in ("cuda", "cpu"))
    assert [graph.options and graph.options.kernels for graph in (for_gpu, for_cpu)] == ["sm_90", None]
    assert for_gpu.structure != for_cpu.structure  # attention in half precision


def test_a_packed_graph_is_the_same_graph() -> None:
    graph = rx.linear(3)
    assert Graph.from_document(unpacked(packed_graph(graph))).sha256 == graph.sha256


def test_without_a_solver_a_schedule_is_found_and_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = rx.solve

    def without(graph: Graph, budget: Any, strategy: str = "optimal", *rest: Any, **options: Any) -> rx.Solution:
        if strategy == "optimal":
            raise SolverError("the solver 'highs' cannot be loaded")
        return solve(graph, budget, strategy, *rest, **options)

    monkeypatch.setattr(schedules.rx, "solve", without)
    found, how = schedules.solve_share(rx.linear(8), "60%", 5.0)
    assert found.schedule is not None
    assert found.peak is not None
    assert found.peak <= found.budget
    assert how == f"by {found.strategy}, since no solver can be loaded here"
