"""What of a graph's schedules a person can edit: which values, into which stages, or why not."""

from __future__ import annotations

from remat_explorer.explanations.wording import persistent_kind
from remat_explorer.graph import Graph
from remat_explorer.solvers.condensed import Condensed


def no_editing(graph: Graph | None) -> str:
    """Why schedules of a graph cannot be edited, or "".

    >>> from remat_explorer.instances import linear
    >>> no_editing(linear(2)), no_editing(None)
    ('', 'There is no model yet.')
    """
    if graph is None:
        return "There is no model yet."
    if graph.has_choices:
        return (
            "Operations have several implementations here: what is kept does not say which of them run. Choose “none” "
            "under Implementations to edit by hand."
        )
    return ""


def refusal(graph: Graph, stage: int, value: int) -> str:
    """Why a value can be neither kept into a stage nor dropped, or "".

    >>> from remat_explorer.instances import linear
    >>> refusal(linear(2), 3, 1), refusal(linear(2), 1, 1)
    ('', "'v1' is computed in stage 1 first, and can be kept from stage 2 on")
    """
    name, first = graph.values[value].name, int(graph.producer[value])
    if not 0 <= stage < graph.n:
        return f"there is no stage {stage}; the stages are 0 to {graph.n - 1}"
    if graph.persistent[value]:
        return f"{name!r} is {persistent_kind(name)}: once computed, it stays in memory to the end"
    if not graph.readers[value]:
        return f"no operation reads {name!r}, so it is never kept"
    if stage <= first:
        return f"{name!r} is computed in stage {first} first, and can be kept from stage {first + 1} on"
    return ""


def groups_of(condensed: Condensed) -> dict[int, int]:
    """The group of each value that has one; the others persist, or nobody reads them.

    >>> from remat_explorer.instances import linear
    >>> groups_of(Condensed.of(linear(2)))
    {0: 0, 1: 1, 2: 2, 3: 3}
    """
    graph = condensed.graph
    group = {(int(graph.producer[v]), graph.readers[v]): number for number, v in enumerate(condensed.member)}
    kept = [v for v in range(len(graph.values)) if graph.readers[v] and not graph.persistent[v]]
    return {v: group[int(graph.producer[v]), graph.readers[v]] for v in kept}
