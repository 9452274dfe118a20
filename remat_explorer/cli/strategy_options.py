"""Options of strategies from a shell: ``--option NAME=VALUE``, as often as needed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from remat_explorer.errors import SolverError, UnknownNameError

if TYPE_CHECKING:
    from remat_explorer.solvers.method import Setting


def named_value(text: str) -> tuple[str, Setting]:
    """A name and what it is set to: a number where it is one, else text.

    Raises:
        argparse.ArgumentTypeError: if there is no name, no value, or no = between them.

    >>> named_value("splits=2"), named_value("share=0.4"), named_value("knapsack=dp")
    (('splits', 2), ('share', 0.4), ('knapsack', 'dp'))
    """
    from remat_explorer.solvers.method import read_option

    try:
        return read_option(text)
    except SolverError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def strategy_options(options: argparse.Namespace) -> dict[str, Any]:
    """What ``--option`` gave, once it is known that the strategy has such options.

    Raises:
        UnknownNameError: if there is no such strategy.
        SolverError: if it has no such option, or one is given twice.
    """
    given: dict[str, Any] = {}
    for name, value in options.strategy_options:
        if name in given:
            raise SolverError(f"--option {name} is given twice, as {given[name]!r} and as {value!r}")
        given[name] = value
    if given:
        from remat_explorer.solvers import STRATEGIES

        if options.strategy not in STRATEGIES:
            raise UnknownNameError("strategy", options.strategy, STRATEGIES)
        STRATEGIES[options.strategy].require_arguments(options.strategy, list(given))
    return given
