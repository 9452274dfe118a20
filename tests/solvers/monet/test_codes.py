"""Which implementations a name, a kind, or several of them allow."""

from __future__ import annotations

import pytest

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.solvers import solve
from remat_explorer.solvers.jobs.solve_job import SolveJob
from remat_explorer.solvers.monet.condensed_choices import allowed_codes

WAYS = (
    Implementation((0,), (1,), 4.0),
    Implementation((0,), (1,), 3.0, name="bits", kinds=("masks",)),
    Implementation((0,), (1,), 2.0, name="from the output, lean", tolerance=1e-6, kinds=("output-activated", "lean")),
    Implementation((0,), (1,), 1.0, name="by hand"),
)


def graph(options: CaptureOptions | None = None, ways: tuple[Implementation, ...] = WAYS) -> Graph:
    values = Value("loss", 1), Value("g", 1, persistent=True)
    operations = operation("loss", "forward", [], [0], 1.0), Operation("g", "backward", ways)
    return Graph("chosen", values, operations, options=options)


@pytest.mark.parametrize(
    ("implementations", "codes"),
    [
        ("all", [1, 2, 3, 4]),
        ("exact", [1, 2, 4]),
        ([], [1]),
        ("masks", [1, 2]),
        ("bits", [1, 2]),
        (["output-activated", "masks"], [1, 2]),
        (["output-activated", "lean"], [1, 3]),
        ("output-activated,lean", [1, 3]),
        ("masks, by hand", [1, 2, 4]),
        ("from the output, lean", [1, 3]),
        ({"masks", "lean", "output-activated"}, [1, 2, 3]),
    ],
)
def test_an_implementation_of_several_kinds_needs_all_of_them(implementations, codes):
    kinds = CaptureOptions(implementations=("masks", "lean", "output-activated"))
    assert allowed_codes(graph(kinds), implementations)[1] == codes
    assert allowed_codes(graph(), implementations)[1] == codes


def test_a_kind_that_was_captured_in_vain_allows_the_defaults_only():
    kinds = CaptureOptions(implementations=("masks", "pooling"))
    assert allowed_codes(graph(kinds), "pooling")[1] == [1]
    assert allowed_codes(graph(kinds, WAYS[:1]), "masks")[1] == [1]


def test_a_kind_that_was_not_captured_is_refused_with_what_to_do():
    with pytest.raises(SolverError, match=r"'chosen' has no .* 'pooling'; capture .*\['pooling'\]"):
        allowed_codes(graph(), "pooling")


def test_a_graph_from_before_kinds_is_refused_rather_than_taken_to_have_none():
    options = CaptureOptions(implementations=("masks",))
    with pytest.raises(SolverError, match="capture the model"):
        allowed_codes(graph(options, (WAYS[0], WAYS[3])), ["masks"])


@pytest.mark.parametrize("name", ["mask", ["masks", "bit"], "masks, bit"])
def test_a_name_that_is_none_is_refused_with_those_there_are(name):
    with pytest.raises(UnknownNameError, match=r"did you mean '(masks|bits)'"):
        allowed_codes(graph(), name)


def test_kinds_reach_the_strategies_and_the_worker_process():
    costs = {"all": 1.0, "masks": 3.0, "lean, output-activated": 2.0}
    for implementations, cost in costs.items():
        assert solve(graph(), 10, "monet", implementations=implementations).cost == 1.0 + cost
    assert solve(graph(), 10, "monet-paper", implementations=["masks"]).cost == 4.0
    job = SolveJob.start(graph(), 10, "monet", time_limit=20, implementations=["lean", "output-activated"])
    assert job.wait(120)
    assert job.solution().cost == 3.0
