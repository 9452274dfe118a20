"""The numbers of docs/findings.md are those of the data that it names, and every finding has its evidence."""

import json
import math
import re
from functools import cache
from pathlib import Path

import pytest

from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.condensed_graph import largest_operation
from remat_explorer.solvers.methods.chen import articulation_split_points, every_sqrt_n
from remat_explorer.solvers.methods.griewank import binomial_schedule
from reproduction import ITEMS
from reproduction.checkmate_largest_batch import best_rule, kept_for_good_peak, published_sqrt_n_checkpoints
from reproduction.layer_graphs import layer_graph, published_batches
from reproduction.p100 import GIB, p100_graph, published_runs, pytorch, smallest_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()
FINDINGS = dict(
    zip(*(iter(re.split(r"^### (.+)$", re.sub(r"^## .*$", "", PAGE, flags=re.M), flags=re.M)[1:]),) * 2, strict=True)
)
MEMORY = 16 * 10**9


def finding(title: str) -> str:
    return " ".join(FINDINGS[title].split())


def baseline(network: str, method: str, twice: bool = False) -> int:
    entry = published_batches(network)["baselines"][method]
    return entry["max_batch_parameters_counted_twice" if twice else "max_batch"]


@cache
def rows(key: str) -> list[dict]:
    return json.loads((ROOT / "benchmarks" / "results" / "papers.json").read_text())[key]["rows"]


def largest(graph: str) -> dict:
    details = json.loads((ROOT / "benchmarks" / "results" / "max_batch.json").read_text())["details"]
    return next(entry for entry in details if entry["graph"] == graph)


def by_network(key: str) -> dict[str, dict]:
    return {row["network"]: row for row in rows(key)}


@pytest.mark.parametrize("title", FINDINGS)
def test_a_finding_says_where_it_is_how_to_see_it_and_what_else_it_may_mean(title: str) -> None:
    assert re.match(
        r"\s*\*[^*]*(Figures?|Table|[Ss]ection|[Ee]quation|[Aa]ppendix|Throughout|abstract|talk)[^*]*\*",
        FINDINGS[title],
    )
    assert "- See: " in FINDINGS[title]
    assert "- The other reading: " in FINDINGS[title]
    assert set(re.findall(r"python -m reproduction ([\w-]+)", FINDINGS[title])) <= set(ITEMS)


def test_the_doubled_parameters_are_those_of_the_published_program() -> None:
    text = finding("VGG19's 167 and 197 count parameters and gradients twice")
    fixed = published_batches("VGG19")["fixed_bytes"]
    alone = published_batches("VGG19")["baselines"]["chen_greedy"]["peak_batch1"]
    batches = [
        baseline("VGG19", method, twice) for twice in (False, True) for method in ("checkpoint_all", "chen_sqrtn")
    ]
    for number in (*batches, (MEMORY - fixed) // alone, (MEMORY - 2 * fixed) // alone):
        assert re.search(rf"\b{number}\b", text), number


def test_the_gains_are_those_of_values_freed_after_their_last_use() -> None:
    known = by_network("checkmate-figure-6")
    row, text = known["VGG19"], finding("The baselines keep values or checkpoints to the end, Checkmate does not")
    assert f"trains {row['everything kept, freed']} examples" in text
    assert (
        f"is {row['batch'] / row['everything kept, freed']:.2f} (289 over 222), where the paper has {289 / 167:.2f}"
        in text
    )
    assert f"Counting parameters once makes {row['batch'] / 181:.2f} of it" in text
    batches = [(best_rule(known[network]), known[network]["batch"]) for network in ("MobileNet", "U-Net")]
    (first, found), (second, other) = batches
    published = known["MobileNet"]["published"]
    assert other == known["U-Net"]["published"]
    assert f"trains {first} on MobileNet and {second} on U-Net: the published {published} and {other} are" in text
    assert f"are {published / first:.2f} and {other / second:.2f} times as many" in text
    assert f"and {found}, found here, {found / first:.2f} times" in text


def test_the_points_of_resnet50_that_are_out_of_order_are_those_of_the_published_schedule() -> None:
    text = finding("ResNet-50's AP √n takes its articulation points out of order")
    graph, known = layer_graph("ResNet50"), published_batches("ResNet50")["baselines"]["chen_sqrtn"]
    points = articulation_split_points(graph)
    for checkpoints in (published_sqrt_n_checkpoints(graph), every_sqrt_n(points)):
        assert f"{', '.join(map(str, checkpoints[:-1]))} and {checkpoints[-1]}" in text
    for number in (known["peak_batch1"], known["cost_batch1"]):
        assert f"{number:,}" in text
    assert f"{known['max_batch']} examples" in text
    assert f"of the {len(points)} points" in text


def test_chens_greedy_rule_on_vgg19_is_in_the_published_data() -> None:
    greedy, everything = (published_batches("VGG19")["baselines"][name] for name in ("chen_greedy", "checkpoint_all"))
    text = finding("Chen's greedy rule trains 289 on VGG19, too")
    ours = next(row for row in rows("checkmate-figure-7") if row["method"] == "Checkmate")
    for number in (greedy["peak_batch1"], greedy["cost_batch1"], everything["cost_batch1"]):
        assert f"{number:,}" in text
    assert greedy["cost_batch1"] <= published_batches("VGG19")["cost_cap_batch1"]
    assert greedy["max_batch"] == published_batches("VGG19")["batch_upper_bound"] == 289
    rule = greedy["cost_batch1"] / everything["cost_batch1"]
    assert f"{format_overhead(ours['overhead'])} in place of {format_overhead(rule)}" in text


def test_batches_and_bounds_are_those_of_figure_6() -> None:
    known = by_network("checkmate-figure-6")
    assert known["SegNet"]["upper bound"] == known["SegNet"]["batch"] == 61 < known["SegNet"]["published"]
    too_large = finding("SegNet's 62 and FCN8's 60 do not fit")
    assert f"{known['SegNet']['batch']} is reached" in too_large
    assert known["FCN8"]["proven"]
    assert f"{known['FCN8']['batch']} is the largest" in too_large
    for network, batch in (("SegNet", 62), ("FCN8", 60)):
        graph = layer_graph(network)
        alone = largest_operation(graph)[1] - graph.resident_bytes
        assert f"{(graph.resident_bytes + batch * alone) / 1e9:.2f} GB at" in too_large
        if network == "SegNet":
            assert f"SegNet's largest is {(MEMORY - graph.resident_bytes) / alone:.2f}" in too_large
    text = finding("ResNet-50's 193 is below its own baselines")
    assert f"{known['ResNet50']['batch']} is reached here, and no more than {known['ResNet50']['upper bound']}" in text
    tried = [known_batch["batch"] for known_batch in largest("keras_ResNet50")["beyond"]]
    assert f"({', '.join(map(str, tried))})" in text
    for method in ("chen_greedy", "chen_greedy_noap"):
        assert str(baseline("ResNet50", method)) in text
        assert str(baseline("ResNet50", method, twice=True)) in text
        assert baseline("ResNet50", method, twice=True) > known["ResNet50"]["published"]
        greedy = published_batches("ResNet50")["baselines"][method]
        assert greedy["cost_batch1"] <= published_batches("ResNet50")["cost_cap_batch1"]
    assert f"with the segments that are tried here, trains {known['ResNet50']['AP greedy, freed']}" in text
    assert known["MobileNet"]["proven"]
    assert f"{known['MobileNet']['batch']} is reached" in finding("MobileNet can have 1231")


def test_the_chain_of_the_notebook_of_figure_1_takes_34_units_and_9_with_seven_slots() -> None:
    text, chain = finding("The 30 GB of Figure 1"), linear(32)
    kept, slots = checkpoint_all_peak(chain), binomial_schedule(chain, 7)
    assert f"takes {kept} units; it multiplies this number alone by 0.85, to {0.85 * kept:.1f}" in text
    assert f"seven slots, which takes {Plan.of(slots).peak} units by REVOLVE" in text
    assert f"whose cost is {slots.cost:g} where computing everything once costs {chain.total_cost:g}" in text


def test_what_one_operation_of_vgg16_needs_is_what_the_remark_of_figure_5_says() -> None:
    graph = layer_graph("VGG16", 256)
    kept = checkpoint_all_peak(graph), graph.resident_bytes + kept_for_good_peak(graph)
    freed, held = (f"{100 * largest_operation(graph)[1] / most:.0f} %" for most in kept)
    remark = ITEMS["checkmate-figure-5"].remark
    assert f"needs {freed} of what keeping everything takes, {held} where" in remark


def test_the_batches_of_unet_are_those_of_the_published_program() -> None:
    sixteen = finding('The 16 of U-Net\'s "61 vs 16"')
    assert baseline("U-Net", "checkpoint_all_ap") == 16
    assert f"trains {baseline('U-Net', 'checkpoint_all')} by (11)" in sixteen
    assert f"By 22 the gain is {61 / 22:.1f}" in sixteen


def test_ratios_are_those_of_table_2() -> None:
    known = {(row["network"], row["method"]): row for row in rows("checkmate-table-2")}
    text = finding("Griewank is close to the optimum on VGG16 and VGG19")
    for network in ("VGG16", "VGG19", "MobileNet"):
        assert f"{known[network, 'griewank']['ratio']:.3f}" in text
        assert f"{known[network, 'griewank']['published']:.2f}" in text
        assert known[network, "griewank"]["budgets with a schedule"] == 6
    unet = known["U-Net", "checkmate-approx"]
    assert unet["budgets with a schedule"] == 1
    text = finding("Two-phase rounding on U-Net")
    assert f"one of six budgets is met, at {unet['ratio']:.3f}" in text
    charged = {(row["network"], row["method"]): row for row in rows("checkmate-table-2-moves-charged")}
    unet = charged["U-Net", "checkmate-approx"]
    assert unet["budgets with a schedule"] == 2
    assert f"two budgets are met, at {unet['ratio']:.3f}" in text
    ratios = [f"{charged[network, 'griewank']['ratio']:.3f}" for network in ("VGG16", "VGG19")]
    assert f"Griewank's schedules stay at {' and '.join(ratios)}" in text
    root, greedy = (f"{charged['ResNet50', method]['ratio']:.3f}" for method in ("ap-sqrt-n", "ap-greedy"))
    assert f"AP √n {root} and AP greedy {greedy}" in text


def test_the_order_of_methods_with_moves_charged_is_what_the_remark_says() -> None:
    of_network: dict[str, list[dict]] = {}
    for row in rows("checkmate-table-2-moves-charged"):
        if row["ratio"] is not None and row["published"] is not None:
            of_network.setdefault(row["network"], []).append(row)

    def in_order(network: str, *left_out: str) -> bool:
        known = [row for row in of_network[network] if row["method"] not in left_out]
        ours, theirs = (sorted(known, key=lambda row: row[column]) for column in ("ratio", "published"))
        return ours == theirs

    assert [network for network in of_network if in_order(network)] == ["MobileNet", "U-Net"]
    assert {network for network in of_network if in_order(network, "griewank")} == of_network.keys() - {"ResNet50"}
    assert in_order("ResNet50", "ap-sqrt-n")


def test_the_draws_of_vgg16_are_those_of_section_5_1() -> None:
    text, known = finding("VGG16 at a fourth of its memory"), rows("checkmate-section-5-1")
    share = format_share(known[0]["largest operation"] / known[0]["everything kept"])
    assert f"alone needs {share} of what keeping everything takes" in text
    assert known[0]["schedules"] == known[0]["feasible"] == 0
    assert f"on top {known[2]['schedules']} are, of which {known[2]['feasible']} fit" in text


def test_the_seconds_of_rounding_and_of_the_integer_program_are_those_of_the_talks_item() -> None:
    text = finding("The talk's 43 and 440 times")
    known = {(row["network"], row["method"]): row for row in rows("checkmate-talk")}
    seconds = {key: row["processor seconds"] for key, row in known.items()}
    rounding, program = seconds["MobileNet", "checkmate-approx"], seconds["MobileNet", "checkmate-ilp"]
    assert known["MobileNet", "checkmate-ilp"]["status"] == known["MobileNet", "optimal"]["status"] == "optimal"
    assert known["ResNet50", "checkmate-ilp"]["cost"] is None
    assert f"rounded MobileNet in {rounding:.1f} s, and proven (9) after {program:.1f} s" in text
    assert f"{program / rounding:.0f} times as long" in text
    assert f"optimum in {1000 * seconds['MobileNet', 'optimal']:.0f} ms" in text
    resnet = seconds["ResNet50", "checkmate-approx"], seconds["ResNet50", "checkmate-ilp"]
    assert f"rounding takes {resnet[0]:.1f} s, and (9) had no schedule after {resnet[1]:.1f} s" in text


def test_checkmates_program_has_no_schedule_of_vgg16_in_7_gib() -> None:
    text, graph = finding("VGG-16 in 7 GB by Checkmate"), p100_graph("vgg16", "checkmate")
    solved = {gib: run for (name, mode, gib), run in published_runs().items() if (name, mode) == ("vgg16", "checkmate")}
    assert solved[7.0]["status"] == "infeasible"
    assert f"infeasible after {solved[7.0]['seconds']:.0f} seconds" in text
    smallest = min(gib for gib, run in solved.items() if run["ms"] is not None)
    assert f"the smallest budget with a solution is {smallest:g}" in text
    assert f"one operation alone needs {largest_operation(graph)[1] / GIB:.2f} GiB" in text


def test_the_gains_of_joint_algorithms_are_those_of_figure_4() -> None:
    known, of_4 = (
        {(row["network"], row["group"]): row["overhead"] for row in rows(key) if row["budget GiB"] == 8}
        for key in ("monet-figure-6", "monet-figure-4")
    )
    assert known | of_4 == known
    text = finding("Without joint algorithms")
    for network in ("googlenet", "resnet50", "vgg16", "unet"):
        pair = [f"{100 * (known[network, group] - 1):.1f} %" for group in ("none", "conv-optimized")]
        assert re.search(f"{pair[0]} against {pair[1]}", text), network
    networks = ("googlenet", "resnet50", "vgg16")
    alone = [f"{100 * (known[network, 'output-activated'] - 1):.1f} %" for network in networks]
    assert f"come to {alone[0]} on GoogLeNet and {alone[1]} on ResNet-50" in text
    assert f"to {alone[2]} on VGG-16" in text


def test_the_bytes_of_resnet50_are_those_of_its_captured_graph() -> None:
    peak = next(row["eager peak"] for row in rows("monet-table-1") if row["network"] == "resnet50")
    assert f"{peak / 1e9:.2f} · 10^9 bytes on the captured graph, {peak / 2**30:.1f} GiB" in finding("GB are GiB")
    text = finding("Table 1's 15.1 and Figure 5's 14.7")
    assert f"it is {peak / 2**30:.1f} GiB" in text
    (eager,) = [row for row in rows("monet-figure-5") if row.get("schedule") == "eager"]
    assert f"takes {eager['peak'] / 2**30:.2f} GiB" in text


def test_the_smallest_runs_of_the_readme_are_the_ratios_that_are_named() -> None:
    text = finding("A third of the memory for all models")
    runs = re.findall(r"(\d\.\d\d) of (\d\d\.\d\d)", text)
    networks = ("resnet50", "googlenet", "mobilenet_v2", "unet", "vgg16")
    known = [(smallest_run(network)[0], pytorch(network)["GiB"]) for network in networks]
    assert [(float(memory), float(everything)) for memory, everything in runs] == known
    ratios = [f"{memory / everything:.2f}" for memory, everything in known]
    assert f"The shares are {', '.join(ratios[:-1])} and {ratios[-1]}," in text
    overheads = [f"{100 * smallest_run(network)[1]:.2f}" for network in networks]
    assert f"at {', '.join(overheads[:-1])} and {overheads[-1]} %" in text


def test_an_hour_and_a_day_are_those_of_the_logs() -> None:
    text, logs = finding("An hour and a day"), [row for row in rows("monet-section-5") if "budget GiB" in row]
    excess = {
        (row["network"], row["budget GiB"]): 100 * (row["hour ms"] / row["ms"] - 1)
        for row in logs
        if row["way"] == "MONeT, published run" and row["hour ms"]
    }
    first = [row["first seconds"] for row in logs if row["way"].startswith("MONeT without")]
    assert f"without implementations has one after {max(first)} s at most" in text
    above = [f"{excess[place]:.2f}" for place in sorted(excess, key=lambda place: -excess[place]) if excess[place] > 2]
    over = [row for row in logs if row["way"] == "MONeT, published run" and (row["seconds"] or math.inf) <= 3600]
    went_on = len(excess) - len(over)
    assert f"In {went_on - len(above)} of the {went_on} runs that went on" in text
    assert f"ResNet-50 at 5 and 6, with {above[0]} and {above[1]} %, and GoogLeNet at 6, with {above[2]} %" in text
    for network, name in (("resnet50", "ResNet-50"), ("googlenet", "GoogLeNet")):
        mine = [row for row in logs if row["network"] == network and row["way"].startswith("Checkmate")]
        first = [row["first seconds"] for row in mine if row["first seconds"]]
        assert re.search(f"the first of {name} (comes )?after {min(first):,} s or later", text)
        assert min(first) > 3600
        assert [row["budget GiB"] for row in mine if not row["first seconds"]] == [5.0] * (network == "googlenet")


def test_costs_of_vgg19s_forward_layers_span_what_is_said() -> None:
    operations = layer_graph("VGG19").operations
    costs = [node.implementations[0].cost for node in operations if node.phase == "forward"]
    some = [cost for cost in costs if cost]
    assert f"span {max(some) / min(some):.0f} times" in finding("VGG19's seven orders of magnitude")


def test_convolutions_of_vgg16_with_a_large_workspace_are_as_many_as_the_page_of_the_papers_says() -> None:
    nodes = [node for node in p100_graph("vgg16", "ic").operations if "convolution" in node.name]
    large = [node for node in nodes if any(way.workspace > 2 * GIB for way in node.implementations)]
    assert f"{len(large)} of its {len(nodes)} have an algorithm" in (ROOT / "docs" / "papers.md").read_text()
