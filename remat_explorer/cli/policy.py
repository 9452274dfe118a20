"""`remat-explorer policy`: the best checkpoints of PyTorch's own within a budget, for code that does not use us."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph
from remat_explorer.cli.output import DONE, beside_search, put, require_outputs, say, written_to
from remat_explorer.cli.solve import remarks, report_interrupted, report_without_schedule
from remat_explorer.cli.watching import watch
from remat_explorer.documents import write_text

LOADER = Path(rx.__file__).parent / "runtime" / "peers" / "policy_loader.py"


def policy(options: argparse.Namespace) -> int:
    """Solve, search for a policy, print what it costs, and write it.

    Raises:
        RematError: if the model cannot be found, captured or solved, or no policy fits.
        OSError: if the file cannot be written.
    """
    require_outputs(options)
    if options.loader:
        return _give_loader(options)
    watched = watch(options, find_graph(options))
    if watched.solution.schedule is None:
        return report_interrupted() if watched.interrupted else report_without_schedule(options, watched)
    say(options, "looking for a policy")
    with beside_search(options, "the search for a policy"):
        found = watched.solution.policy()
    say(options, "")
    lines = [str(watched.solution), *remarks(watched), str(found)]
    if options.output:
        with warnings.catch_warnings(record=True, action="always") as remarked:
            found.save(options.output)
        lines += [written_to(options.output), *(str(one.message) for one in remarked)]
    put(options, found.to_document() | {"price": found.price, "interrupted": watched.interrupted}, "\n".join(lines))
    return DONE


def _give_loader(options: argparse.Namespace) -> int:
    """Print the program that reads policies, or write it where that was asked for."""
    program = LOADER.read_text(encoding="utf-8")
    text = program.rstrip("\n")
    if options.output:
        write_text(options.output, program)
        text = written_to(options.output)
    put(options, {"loader": program}, text)
    return DONE


class AskForLoader(argparse.Action):
    """Asks for the program that reads policies, for which neither a model nor a budget is needed."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any) -> None:
        setattr(namespace, self.dest, True)
        for action in parser._actions:
            action.required = False
