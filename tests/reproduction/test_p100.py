"""MONeT's ablation and case study on what its authors measured: graphs, runs, and algorithms chosen afterwards."""

from dataclasses import replace

import pytest

from remat_explorer.errors import GraphError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak
from reproduction import ITEMS, monet_measured, p100
from reproduction.p100 import (
    GIB,
    MODES,
    NETWORKS,
    OTHER_PROBLEM,
    cost_with_fastest_algorithms,
    has_graph,
    memory_at,
    p100_graph,
    published_runs,
    pytorch,
    smallest_run,
)
from tests.reproduction.searches import search_until_found


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_has_a_graph_of_every_mode_but_for_the_one_that_was_not_published(network):
    missing = [mode for mode in MODES if not has_graph(network, mode)]
    assert missing == (["in"] if network == "mobilenet_v2" else [])
    graph = p100_graph(network, "icmn")
    assert any(len(one.implementations) > 1 for one in graph.operations)
    assert all(len(one.implementations) == 1 for one in p100_graph(network, "checkmate").operations)
    if missing:
        with pytest.raises(UnknownNameError, match="mobilenet_v2_in"):
            p100_graph(network, "in")


def test_by_the_authors_rule_what_runs_in_place_in_the_forward_pass_does_so_only_where_its_input_dies():
    graph, ruled = p100_graph("vgg16", "icmn"), p100_graph("vgg16", "icmn", ruled=True)
    assert not graph.runs_in_place
    for before, after in zip(graph.operations, ruled.operations, strict=True):
        ways = {way.name: way for way in after.implementations}
        assert ways.keys() == {way.name for way in before.implementations}
        for way in before.implementations:
            changed = ways[way.name]
            assert replace(way, kinds=(), in_place=False) == replace(changed, kinds=(), in_place=False)
            assert changed.in_place == (before.phase == "forward" and way.name.startswith("in place"))
    assert sum(way.in_place for node in ruled.operations for way in node.implementations) == 30
    assert p100_graph("vgg16", "checkmate", ruled=True) == p100_graph("vgg16", "checkmate")  # nothing is chosen


def test_graphs_and_runs_are_those_of_the_papers_words():
    assert f"{checkpoint_all_peak(p100_graph('resnet50', 'icmn')) / GIB:.1f}" == "14.7"
    networks = monet_measured.FIGURE_4_NETWORKS["full"]
    ratios = [round(monet_measured.BUDGET / pytorch(network)["GiB"], 2) for network in networks]
    assert dict(zip(networks, ratios, strict=True)) == {"resnet50": 0.53, "googlenet": 0.54, "vgg16": 0.57}
    runs = published_runs()
    run = runs["resnet50", "icmn", 5.0]
    assert run["first seconds"] < 3600 < run["seconds"]
    assert run["ms"] < run["hour ms"] < 1.04 * run["ms"]
    assert runs["googlenet", "checkmate", 5.0]["first seconds"] is None
    assert {runs["vgg16", mode, 7.0]["status"] for mode in ("i", "ic", "im")} == {"infeasible"}
    assert runs["vgg16", "in", 5.5]["ms"] is not None  # masks reach memory that no other single choice reaches


def test_published_objectives_over_measured_overheads_give_one_time_of_pytorch():
    for network in NETWORKS:
        plain = pytorch(network)
        for run in plain["measured"]:
            objective = published_runs()[network, "icmn", float(run["budget_gib"])]["ms"]
            assert objective / (1 + run["overhead_percent"] / 100) == pytest.approx(plain["ms"], rel=0.015)


def test_memory_at_ten_per_cent_between_the_measured_runs_is_near_what_table_1_prints():
    for network, printed in (("resnet50", 0.377), ("googlenet", 0.463), ("unet", 0.364)):
        memory = memory_at(network, 0.1)
        assert memory is not None
        assert memory / pytorch(network)["GiB"] == pytest.approx(printed, abs=0.005)
    for network in ("vgg16", "mobilenet_v2"):
        assert memory_at(network, 0.1) is None
        assert smallest_run(network)[1] < 0.1
    assert smallest_run("mobilenet_v2")[0] > 4.8


def test_memory_at_a_tenth_is_interpolated_between_what_fits_into_each_budget():
    def at(gib: float, overhead: float | None, way: str = monet_measured.JOINT) -> dict:
        return {"network": "vgg16", "way": way, "budget GiB": gib, "overhead": overhead, "gap": None}

    rows = [at(6.0, 1.3), at(5.5, 1.05), at(5.0, 1.15)]
    rows += [at(9.0, 1.2, monet_measured.PLAIN), at(8.0, None, monet_measured.PLAIN)]
    told = monet_measured.figure_3_words(rows).partition("At 10 % overhead, interpolated between budgets: ")[2]
    assert told == "vgg16: with implementations 5.2 GiB; Checkmate-O more than 9 GiB."


def two_convolutions(costs_and_workspaces: list[tuple[float, int]], name: str) -> Graph:
    """A convolution that others read, and one after it, each with these implementations; values of 10 bytes."""
    values = (Value("a", 10), Value("b", 10))

    def ways(inputs: tuple[int, ...], output: int) -> tuple[Implementation, ...]:
        return tuple(
            Implementation(inputs, (output,), cost, workspace, f"cudnn {i}", kinds=() if i == 0 else ("algorithms",))
            for i, (cost, workspace) in enumerate(costs_and_workspaces)
        )

    gradient = Operation("1 convolution_ip_grad", "backward", ways((0,), 1))
    return Graph(name, values, (Operation("0 convolution", "forward", ways((), 0)), gradient))


def test_a_convolution_gets_the_fastest_algorithm_for_which_there_is_room_at_that_moment():
    plain = two_convolutions([(5.0, 0)], "plain")
    choices = two_convolutions([(5.0, 0), (3.0, 12), (1.0, 22)], "choices")
    schedule = checkpoint_all(plain)  # 10 bytes are held during the first, 20 during the second
    costs = {budget: cost_with_fastest_algorithms(schedule, choices, budget) for budget in (20, 22, 32, 42)}
    assert costs == {20: 10.0, 22: 8.0, 32: 4.0, 42: 2.0}
    with pytest.raises(GraphError, match="39"):
        cost_with_fastest_algorithms(checkpoint_all(p100_graph("vgg16", "i")), choices, GIB)


def test_the_ablation_at_one_memory_has_a_row_for_each_mode_and_for_its_published_run(monkeypatch):
    search_until_found(monkeypatch, p100)
    outcome = ITEMS["monet-figure-4"].run("small")
    assert outcome.complete
    groups = [row["group"] for row in outcome.rows]
    assert sorted(groups) == sorted([*MODES.values(), *(name + p100.PUBLISHED for name in MODES.values())])
    for row in outcome.rows:
        theirs = row["group"].endswith(p100.PUBLISHED)
        joint = row["group"].startswith(("conv", "all"))
        assert (row["overhead"] is not None) == (joint or not theirs), row
    assert outcome.result == ITEMS["monet-figure-4"].words(outcome.rows, "small")
    bars, _, diamonds = outcome.figure.to_dict()["data"]  # of the one network
    heights = {row["group"]: 100 * (row["overhead"] - 1) for row in outcome.rows if row["overhead"] is not None}
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {name: heights[name] for name in MODES.values()}
    theirs = {
        name.removesuffix(p100.PUBLISHED): high for name, high in heights.items() if name.endswith(p100.PUBLISHED)
    }
    assert dict(zip(diamonds["y"], diamonds["x"], strict=True)) == theirs


def test_figure_3_has_the_authors_runs_and_both_problems_at_their_budgets(monkeypatch):
    search_until_found(monkeypatch, p100)
    outcome = ITEMS["monet-figure-3"].run("small")
    assert outcome.complete
    by_way: dict[str, dict[float, float | None]] = {}
    for row in outcome.rows:
        by_way.setdefault(row["way"], {})[row["budget GiB"]] = row["overhead"]
    assert by_way.keys() == monet_measured.LOOKS.keys()
    assert len(by_way[monet_measured.MEASURED]) == 6
    for way in (monet_measured.OBJECTIVE, monet_measured.JOINT, monet_measured.PLAIN):
        assert list(by_way[way]) == [10.0, 8.0]
    assert by_way[monet_measured.OBJECTIVE][8.0] == pytest.approx(1383.33 / pytorch("vgg16")["ms"])
    (plain,) = (row for row in outcome.rows if (row["way"], row["budget GiB"]) == (monet_measured.PLAIN, 10.0))
    assert plain["ms"] == pytest.approx(published_runs()["vgg16", "checkmate", 10.0]["ms"])
    assert plain["overhead"] < plain["ms"] / pytorch("vgg16")["ms"]  # by faster algorithms
    assert outcome.result == ITEMS["monet-figure-3"].words(outcome.rows, "small")


def test_what_costs_more_than_the_published_run_is_counted():
    row = {"network": "vgg16", "budget GiB": 8.0, "gap": None, "status": "feasible", "overhead": 1.0}
    rows = [row | {"group": "all", "ms": 11.0}, row | {"group": "all" + p100.PUBLISHED, "ms": 10.0}]
    rows += [row | {"group": "none", "ms": 9.0}, row | {"group": "none" + p100.PUBLISHED, "ms": 10.0}]
    assert p100.against_published(rows, lambda group: group == "all") == (0, 1, pytest.approx(0.1))
    assert p100.against_published(rows, lambda group: group == "none")[:2] == (1, 1)
    network, mode, gib = OTHER_PROBLEM[0]
    rows += [
        one | {"network": network, "group": MODES[mode] + end, "budget GiB": gib}
        for one, end in ((rows[0], ""), (rows[1], p100.PUBLISHED))
    ]
    assert p100.against_published(rows, lambda group: group == MODES[mode])[1] == 0
    assert "at most 10.0 % more at the others" in monet_measured.figure_6_words([one | {"share": 0.5} for one in rows])
