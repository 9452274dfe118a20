"""What a worker says to its parent, as JSON objects: progress with R and S as rows of digits, like solution files."""

from __future__ import annotations

from typing import Any

from remat_explorer.documents import pack_rows, unpack_rows
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Progress


def pack_progress(progress: Progress, with_schedule: bool) -> dict[str, Any]:
    """A progress message; ``with_schedule`` is False when the parent has this schedule already."""
    message: dict[str, Any] = {
        "seconds": progress.seconds,
        "doing": progress.doing,
        "lower_bound": progress.lower_bound,
    }
    if progress.schedule is not None and with_schedule:
        message |= {"R": pack_rows(progress.schedule.R), "S": pack_rows(progress.schedule.S)}
    return message


def unpack_progress(message: dict[str, Any], graph: Graph, known: Schedule | None) -> Progress:
    """The progress of a message; ``known`` is the schedule that earlier messages brought.

    Raises:
        SolverError: if the message is not one of `pack_progress`.
    """
    try:
        if "R" in message:
            known = Schedule(graph, *(unpack_rows(message[name], name, SolverError) for name in ("R", "S")))
        return Progress(message["seconds"], message["doing"], known, message["lower_bound"])
    except (KeyError, TypeError, ValueError) as error:
        raise SolverError(f"the worker sent a progress message that cannot be read: {error!r}") from None
