"""Nonsense for every option of every command, as its parser knows them."""

import argparse
from functools import cache
from typing import Any

from hypothesis import strategies as st

from remat_explorer.cli.parser import make_parser
from remat_explorer.solvers.registry import STRATEGIES
from tests.fuzz.mutants import texts

NEEDED = {  # what a command does not begin without
    "solve": ["--budget", "100%"],
    "report": ["--budget", "100%", "-o", "OUTPUT"],
    "run": ["--budget", "100%"],
    "capture": ["-o", "OUTPUT"],
    "max-batch": ["--memory", "99"],
    "ablation": ["--budgets", "100%,", "--time-limit", "0.1"],
    "sweep": ["--budgets", "100%,"],
    "minimum-budget": ["--time-limit", "0.1"],
}
MODELS = [*["GRAPH"] * 20, "PIPE", "FOLDER", "/dev/zero", "missing.json", "vg16", "nets.py:make", ""]


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = [a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(commands.choices)


@st.composite
def command_lines(draw: st.DrawFn, command: str) -> list[str]:
    """A command with its model, what it needs, and up to two options that are nonsense more often than not.

    GRAPH, PIPE, FOLDER and OUTPUT stand for paths.
    """
    actions = [a for a in parsers()[command]._actions if not isinstance(a, argparse._HelpAction)]
    line = [command]
    for action in actions:
        if not action.option_strings and (action.nargs != "?" or draw(st.booleans())):
            line.append(draw(st.sampled_from(MODELS)) if action.dest == "model" else draw(_values(action)))
    line += NEEDED.get(command, [])
    options = [a for a in actions if a.option_strings]
    for action in draw(st.lists(st.sampled_from(options), max_size=2)) if options else []:
        flag = draw(st.sampled_from(action.option_strings))
        if action.nargs == 0:
            line.append(flag)
        elif draw(st.booleans()) and flag.startswith("--"):
            line.append(f"{flag}={draw(_values(action))}")
        else:
            line += [
                flag,
                *(draw(_values(action)) for _ in range(action.nargs if isinstance(action.nargs, int) else 1)),
            ]
    return line


def _values(action: argparse.Action) -> st.SearchStrategy[str]:
    if action.dest == "strategy_options":
        names = sorted({name for method in STRATEGIES.values() for name in method.arguments})
        return st.builds("{}={}".format, st.sampled_from(names), texts) | texts
    if action.dest in ("output", "figure", "trace", "snapshot"):
        return st.sampled_from(("OUTPUT", "FOLDER", "PIPE", "/dev/null", "/dev/full", "missing/x.json", "\0", ""))
    if action.dest == "strategy":
        return st.sampled_from([*STRATEGIES, "optimall"])
    return texts if not action.choices else st.sampled_from([*map(str, action.choices)]) | texts


@st.composite
def settings_of_strategies(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A strategy, and one of its options with a value that it may not have."""
    named = [(name, option) for name, method in STRATEGIES.items() for option in method.arguments]
    strategy, option = draw(st.sampled_from(named))
    value = draw(
        st.sampled_from((0, 1, 2, 3, -1, 2**31, 2**63, 10**400, 0.5, 1e-300, 1e308, -0.5, float("nan"), float("inf")))
        | st.sampled_from(("", "all", "dp", "greedy", "nan", "層", "1" * 300))
        | st.sampled_from((None, True, [], ["masks"], {}, b"x"))
    )
    return strategy, {option: value}
