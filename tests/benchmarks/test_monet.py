"""MONeT: the problems that its authors solved, as the benchmark has them, and networks as a GPU profiled them."""

from pathlib import Path

import monet_p100
import pytest
from gpu_parts.record import Record
from gpu_parts.schedules import packed_graph
from monet_models import CUDA, case_of, unavailable
from monet_p100 import UNIT, problems
from monet_parts import table_one

import remat_explorer as rx
from remat_explorer.errors import RematError
from reproduction.p100 import GIB, p100_graph
from tests.thorough import thorough_but

KNOWN = {problem.name: problem for problem in problems()}


def test_each_problem_has_the_best_that_any_published_run_found():
    assert KNOWN["vgg16_icmn@6"].cost == pytest.approx(1.49129)
    assert KNOWN["vgg16_icmn@10"].cost == pytest.approx(1.324)  # a second run was interrupted at 3.57383 s
    assert KNOWN["vgg16_icmn@10"].wall == 16.94
    assert KNOWN["vgg16_icmn@5"].cost is None
    assert KNOWN["unet_checkmate@8"].wall is None  # a solution without a log
    assert KNOWN["unet_icmn@5"].bound == pytest.approx(1.28123)
    assert {problem.strategy for problem in KNOWN.values() if problem.mode == "checkmate"} == {"optimal"}
    assert {problem.strategy for problem in KNOWN.values() if problem.mode == "icmn"} == {"monet"}


def test_a_row_says_ours_beside_theirs():
    entry = monet_p100.solved(KNOWN["vgg16_checkmate@10"], 60.0, subset=False)
    assert entry["ours"]["status"] == "optimal"
    row = dict(zip(monet_p100.COLUMNS, monet_p100.row("vgg16_checkmate@10", entry), strict=True))
    assert row["problem"] == "vgg16_checkmate@10"
    assert row["ours, ms"] == row["theirs, ms"] == "2506.00"
    assert row["ours/theirs"] in ("+0.00 %", "-0.00 %")
    assert "as much in 1, more in 0" in monet_p100.summary({"vgg16_checkmate@10": entry})


def test_a_row_that_costs_more_is_marked():
    ours = {"cost": 1.1, "bound": 1.0, "gap": 0.1 / 1.1, "wall": 60.0, "status": "feasible"}
    theirs = {"cost": 1.0, "bound": 1.0, "wall": 10.0, "status": "optimal"}
    entry = {"ours": ours, "theirs": theirs, "worse": True, "loses_to_subset": True, "subset": {"cost": 1.0}}
    assert monet_p100.row("unet_i@5", entry)[0] == "unet_i@5!?"
    told = monet_p100.summary({"unet_i@5": entry})
    assert "by at most 10 %. In 0 ours costs less than their lower bound (our problem is wider). " in told
    assert "The widest gap is 9.09 % (row unet_i@5). " in told
    assert told.endswith("Of 1 problems with a choice of implementations, ours costs more than the defaults in 1")
    other = dict(zip(monet_p100.COLUMNS, monet_p100.row("resnet50_in@8", entry), strict=True))
    assert (other["problem"], other["ours/theirs"]) == ("resnet50_in@8~", "")  # a published run of another problem
    assert monet_p100.summary({"resnet50_in@8": entry}).startswith("of 0 problems")


def test_the_page_of_the_papers_shows_what_the_results_file_holds():
    shown = monet_p100.PAGE.read_text().partition(monet_p100.BEGINS)[2].partition(monet_p100.ENDS)[0].strip()
    assert shown == monet_p100.page_text(monet_p100.read()), "run: python benchmarks/monet_p100.py --table"


@pytest.mark.parametrize("name", thorough_but(["vgg16_icmn@8", "vgg16_icmn@6"], "vgg16_icmn@8"))
def test_monet_finds_within_the_authors_rule_what_gurobi_found_on_vgg16(name):
    problem = KNOWN[name]
    graph = p100_graph("vgg16", "icmn", ruled=True)
    assert problem.cost is not None
    enough = 1.002 * problem.cost
    found: list[float] = []
    solution = rx.solve(
        graph,
        int(problem.gib * GIB),
        "monet",
        time_limit=1800,
        on_progress=lambda report: found.append(report.cost if report.cost is not None else 2 * enough),
        cancelled=lambda: bool(found) and min(found) <= enough,
    )
    assert solution.cost is not None
    assert solution.lower_bound is not None
    assert solution.lower_bound <= problem.cost + UNIT  # what they proved
    assert solution.cost <= enough


def test_a_profiled_network_is_a_case_whose_table_1_is_solved_and_another_is_named(tmp_path: Path) -> None:
    record = Record.of(tmp_path, "monet_paper")
    record.units = {"vgg16": {"size": "batch 176", "graph": packed_graph(rx.linear(6))}, "unet_monet": {}}
    record.write()
    case = case_of("vgg16", CUDA, record.path)
    assert case.graph.sha256 == rx.linear(6).sha256
    assert (case.size, case.executable, unavailable(CUDA, record.path)) == ("batch 176", None, "")
    found = table_one(case, 2.0)
    assert 0 < found["ways"]["monet"]["peak"] <= found["eager_peak"]
    assert "measured" not in found["ways"]["monet"]
    with pytest.raises(RematError, match="holds no profiled graph of 'unet_monet'"):
        case_of("unet_monet", CUDA, record.path)
