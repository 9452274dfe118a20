"""A plan and where its values lie, as the browser draws them: columns of numbers, and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remat_explorer.explanations import alive_at
from remat_explorer.figures.layers import layers_of
from remat_explorer.figures.memory_map import KINDS, Piece, pieces_of
from remat_explorer.figures.palette import DARK, LIGHT, Palette
from remat_explorer.graph import Graph
from remat_explorer.offsets import Arena
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes, format_share

MOST_GROUPS = 16  # of layers, beyond which their names are cut after fewer parts
OUTSIDE = "outside of modules"
RESIDENT = -1  # in place of a value; -2 - k stands for the workspace of operation k


def map_columns(plan: Plan, arena: Arena) -> dict[str, list[int]]:
    """Everything that a plan holds, in the order of birth, one entry each.

    Time is counted in computations: freeing takes none.

    Returns:
        ``birth``, computations since the one before was born; ``life``, for how many computations it lives;
        ``value``, or what stands for it, less that of the one before; ``kind``, an index of `KINDS`; ``offset``
        and ``bytes``.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offsets import Rectangles, place_at_once
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> columns = map_columns(plan, place_at_once(Rectangles.of(plan)))
    >>> columns["birth"], columns["life"], columns["offset"]
    ([0, 1, 1], [3, 2, 1], [0, 1, 2])
    """
    before = np.concatenate([[0], np.cumsum([isinstance(statement, Compute) for statement in plan.statements])])
    pieces = sorted(pieces_of(plan, arena.rectangles), key=lambda piece: piece.begin)
    rectangle = np.array([piece.rectangle for piece in pieces], dtype=np.int64)
    birth = before[[piece.begin for piece in pieces]].astype(np.int64)
    value = [piece.value if piece.value >= 0 else _standing_for(plan, piece) for piece in pieces]
    return {
        "birth": np.diff(birth, prepend=0).tolist(),
        "life": (before[[piece.end for piece in pieces]] - birth).tolist(),
        "value": np.diff(np.array(value, dtype=np.int64), prepend=0).tolist(),
        "kind": [KINDS.index(piece.kind) for piece in pieces],
        "offset": arena.offsets[rectangle].tolist(),
        "bytes": arena.rectangles.size[rectangle].tolist(),
    }


def _standing_for(plan: Plan, piece: Piece) -> int:
    """What stands in place of a value for resident bytes, or for the workspace of the operation that runs."""
    running = plan.statements[piece.begin]
    return -2 - running.operation if piece.kind != "resident" and isinstance(running, Compute) else RESIDENT


def map_lines(plan: Plan, measured: np.ndarray | None = None) -> dict[str, list[int]]:
    """Where stages begin, and what was measured; what is predicted are the rectangles themselves.

    Args:
        plan: c computations.
        measured: bytes while each statement ran, or None.

    Returns:
        ``starts``, the first computation of each stage, and c at last; ``measured`` bytes while each computation ran,
        empty where nothing was measured.
    """
    computes = np.array([isinstance(statement, Compute) for statement in plan.statements], dtype=bool)
    stages = plan.timeline.stage[computes]
    last = int(stages[-1]) + 1 if len(stages) else 0
    return {
        "starts": np.searchsorted(stages, np.arange(last + 1)).tolist(),
        "measured": [] if measured is None else np.asarray(measured)[computes].tolist(),
    }


def arena_words(arena: Arena) -> str:
    """How large the block is, how near that is to the least, and what lives at most at a time.

    >>> from remat_explorer.offsets import Rectangles, place_at_once
    >>> arena_words(place_at_once(Rectangles.from_rows([(0, 2, 10), (1, 3, 5)])))
    'one block of 15 B, proven least'
    """
    proven = "proven least" if arena.optimal else f"within {format_share(arena.gap)} of the least"
    return f"one block of {format_bytes(arena.size)}, {proven}"


def map_names(graph: Graph) -> dict[str, Any]:
    """Names of a graph.

    Returns:
        ``values``: name, bytes and layer of each; ``operations``: name and layer of each; ``layers``: name and group
        of each; ``groups``: their names, of which the colours of the map tell.
    """
    layers = layers_of(graph)
    modules = {node.details.module for node in graph.operations if node.details is not None} - {""}
    groups, of_layer = grouped([name if name in modules or not modules else OUTSIDE for name in layers.names])
    layer_of = layers.of_operation.tolist()
    return {
        "values": [[value.name, value.bytes, layer_of[graph.producer[v]]] for v, value in enumerate(graph.values)],
        "operations": [[node.name, layer_of[k]] for k, node in enumerate(graph.operations)],
        "layers": [[name, group] for name, group in zip(layers.names, of_layer, strict=True)],
        "groups": groups,
    }


def grouped(names: Sequence[str], most: int = MOST_GROUPS) -> tuple[list[str], list[int]]:
    """Layers that have the first parts of their paths in common, with as many parts as give at most ``most`` groups.

    Args:
        names: paths of modules.
        most: groups, where a single part gives no more.

    Returns:
        Names of the groups, and the group of each layer.

    >>> grouped(["head", "blocks.0.norm", "blocks.0.act", "blocks.1.norm"], most=3)
    (['head', 'blocks.0', 'blocks.1'], [0, 1, 1, 2])
    """
    parts = [name.split(".") for name in names]
    found: list[str] = []
    deepest = max(map(len, parts), default=1)
    for depth in range(1, deepest + 1):
        heads = [".".join(path[:depth]) for path in parts]
        if depth > 1 and len(set(heads)) > most:
            break
        found = heads
    groups = list(dict.fromkeys(found))
    number = {name: i for i, name in enumerate(groups)}
    return groups, [number[name] for name in found]


def peak_of_other(plan: Plan, label: str) -> dict[str, Any]:
    """What is in memory at the peak of another schedule.

    Returns:
        ``label``; ``stage``; ``bytes``; ``values``; and ``workspace``, with its operation as ``running``.
    """
    memory = alive_at(plan)
    running = plan.statements[memory.statement]
    return {
        "label": label,
        "stage": memory.stage,
        "bytes": memory.total,
        "values": [row.value for row in memory.rows if row.value is not None],
        "workspace": sum(row.bytes for row in memory.rows if row.kind == "workspace"),
        "running": running.operation if isinstance(running, Compute) else -1,
    }


def map_colours() -> dict[str, dict[str, Any]]:
    """Colours of both themes: of the kinds, and of groups of layers, none of which has another meaning here."""
    return {theme: _colours(palette) for theme, palette in (("light", LIGHT), ("dark", DARK))}


def _colours(palette: Palette) -> dict[str, Any]:
    kinds = ("resident", "kept", "temporaries", "gradients", "recompute")
    layers = (palette.kept, palette.gradients, palette.only_second, palette.temporaries, palette.hues[-1])
    others = (
        "predicted measured budget cursor found only_first only_second both empty ground ink grid resident recompute"
    )
    return {
        "kinds": [getattr(palette, name) for name in kinds],
        "layers": list(layers),
        **{name: getattr(palette, name) for name in others.split()},
    }
