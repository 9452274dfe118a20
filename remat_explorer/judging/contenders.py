"""Who is judged: every strategy but ours, PyTorch's memory budget once for each of its knapsack solvers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remat_explorer.errors import UnknownNameError
from remat_explorer.solvers import STRATEGIES

OURS = "optimal"
WAYS: Mapping[str, tuple[dict[str, Any], ...]] = {
    OURS: (),
    "monet": (),  # on graphs with one implementation of each operation this and the next are ours
    "monet-paper": (),
    "pytorch-budget": ({"knapsack": "dp"}, {"knapsack": "greedy"}, {"knapsack": "ilp"}),
}
"""The options with which a strategy is judged, each by itself; without an entry it is judged as it is."""


@dataclass(frozen=True)
class Contender:
    """One method as it is judged.

    Attributes:
        name: what rows are called.
        strategy: a key of `STRATEGIES`.
        options: keyword arguments of the strategy.
    """

    name: str
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)


def contenders() -> tuple[Contender, ...]:
    """Everyone, in the order of the registry.

    >>> names = [contender.name for contender in contenders()]
    >>> "pytorch-budget (ilp)" in names, "optimal" in names
    (True, False)
    """
    found: list[Contender] = []
    for strategy in STRATEGIES:
        for options in WAYS.get(strategy, ({},)):
            name = f"{strategy} ({', '.join(map(str, options.values()))})" if options else strategy
            found.append(Contender(name, strategy, options))
    return tuple(found)


def contender(name: str) -> Contender:
    """The one of a name.

    Raises:
        UnknownNameError: if nobody is called so.

    >>> contender("pytorch-budget (dp)").options
    {'knapsack': 'dp'}
    """
    known = {one.name: one for one in contenders()}
    if name not in known:
        raise UnknownNameError("method", name, known)
    return known[name]
