"""Options of strategies as text: ``NAME=VALUE``, one of them or several with commas between them."""

from __future__ import annotations

import inspect
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.solvers.method import Method

Setting = str | int | float


def read_option(text: str) -> tuple[str, Setting]:
    """A name and what it is set to: a number where it is one, else text.

    Raises:
        SolverError: if there is no name, no value, or no = between them.

    >>> read_option("splits=2"), read_option("share=0.4"), read_option("knapsack=dp")
    (('splits', 2), ('share', 0.4), ('knapsack', 'dp'))
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise SolverError(f"{text!r} is not NAME=VALUE, such as segments=4")
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    return name, value


def read_options(text: str, strategy: str, method: Method) -> dict[str, Setting]:
    """Several options of a strategy.

    Args:
        text: "NAME=VALUE, NAME=VALUE", or nothing.
        strategy: its name, for the message.
        method: what it is.

    Raises:
        SolverError: if an option cannot be read, is given twice, or is none of the strategy's.

    >>> from remat_explorer.solvers.strategies.registry import STRATEGIES
    >>> read_options("epsilon=0.2, threshold=0.5", "checkmate-approx", STRATEGIES["checkmate-approx"])
    {'epsilon': 0.2, 'threshold': 0.5}
    >>> read_options("slot=3", "griewank", STRATEGIES["griewank"])
    Traceback (most recent call last):
        ...
    remat_explorer.errors.SolverError: the strategy 'griewank' has no option 'slot'; its options: slots
    """
    given: dict[str, Setting] = {}
    for part in text.split(","):
        if part.strip():
            name, value = read_option(part)
            if name in given:
                raise SolverError(f"the option {name} is given twice, as {given[name]!r} and as {value!r}")
            given[name] = value
    method.require_arguments(strategy, list(given))
    return given


def write_options(options: dict[str, Any]) -> str:
    """The text that `read_options` reads.

    >>> write_options({"epsilon": 0.2, "threshold": 0.5})
    'epsilon=0.2, threshold=0.5'
    """
    return ", ".join(f"{name}={value}" for name, value in options.items())


def default_options(method: Method) -> dict[str, str]:
    """What a method's arguments are without being given, in words.

    >>> from remat_explorer.solvers.strategies.registry import STRATEGIES
    >>> default_options(STRATEGIES["checkmate-ilp"]), default_options(STRATEGIES["griewank"])
    ({'splits': '1'}, {'slots': 'all'})
    """
    try:
        parameters = dict(inspect.signature(method.run).parameters)
    except (TypeError, ValueError):  # loaded from another package when it first runs
        parameters = {}
    options = {}
    for name in method.arguments:
        default = parameters[name].default if name in parameters else None
        is_knob = method.knob is not None and method.knob.name == name
        unknown = default is None or default is inspect.Parameter.empty
        options[name] = ("all" if is_knob else "…") if unknown else str(default)
    return options
