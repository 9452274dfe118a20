"""What docs/offload.md shows is so."""

import pytest

import remat_explorer as rx
from remat_explorer.solvers import TRANSFER_STRATEGIES
from tests.project.pages import blocks, page

PAGE = page("docs/offload.md")


def test_the_program_of_the_page_finds_a_plan_that_computes_nothing_again(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(PAGE, "python"):
        exec(block, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "11.0 9.0 optimal"
    assert "send" in "".join(lines[1:])


def test_the_page_names_every_strategy_and_a_link_that_there_is() -> None:
    for strategy in TRANSFER_STRATEGIES:
        assert f"`{strategy}`" in PAGE
    assert 'rx.Transfers.of("pcie4")' in PAGE
    assert rx.Transfers.of("pcie4").out > 31e9
