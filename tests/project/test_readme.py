"""What the README shows works: its Python blocks run as one program, its files exist."""

import re

from remat_explorer.solvers import STRATEGIES
from tests.project.pages import ROOT, blocks, links, named_files, page

README = page("README.md")
BLOCKS = blocks(README, "python")


def test_the_python_blocks_run_in_order_and_the_prediction_holds(capsys):
    names: dict = {}
    programs = [block for block in BLOCKS if "rx.Explorer" not in block]  # the explorer's own tests run that one
    for program in programs:
        exec(program, names)
    assert len(programs) == len(BLOCKS) - 1 >= 4
    assert "gradients equal: max difference 0" in capsys.readouterr().out
    assert all(parameter.grad is not None for parameter in names["model"].parameters())


def test_every_file_that_is_named_exists():
    paths = named_files(README) + links(README)
    assert len(paths) > 8
    for path in paths:
        assert (ROOT / path).exists(), path


def test_every_strategy_is_in_the_table_and_every_option_of_solving_is_named():
    for name in STRATEGIES:
        assert re.search(rf"^\| .*`{name}`.* \|", README, re.MULTILINE), name
    for option in (
        "--strategy",
        "--strategies",
        "--solver",
        "--time-limit",
        "--threads",
        "--workers",
        "--no-cache",
        "--option",
    ):
        assert f"`{option}" in README
