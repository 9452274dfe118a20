"""What a worker says to its parent, as JSON objects: progress with what a schedule computes and retains."""

from __future__ import annotations

from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations, Retained
from remat_explorer.solvers.base import Progress


def pack_progress(progress: Progress, with_schedule: bool) -> dict[str, Any]:
    """A progress message; ``with_schedule`` is False when the parent has this schedule already."""
    message: dict[str, Any] = {
        "seconds": progress.seconds,
        "doing": progress.doing,
        "lower_bound": progress.lower_bound,
    }
    if progress.schedule is not None and with_schedule:
        schedule = progress.schedule
        message |= {"stages": schedule.stages, "computations": schedule.computations.rows()}
        message |= {"retained": schedule.retained.rows()}
    return message


def unpack_progress(message: dict[str, Any], graph: Graph, budget: int, progress: Progress) -> Progress:
    """What is known once a message was heard: the cheaper schedule, checked, and the higher bound.

    Args:
        message: as `pack_progress` made it.
        graph: of the solve.
        budget: bytes that a schedule must keep to.
        progress: what was known before.

    Raises:
        SolverError: if the message is not one of `pack_progress`, or its schedule breaks a rule or the budget.
    """
    try:
        schedule, bounds = progress.schedule, [progress.lower_bound, message["lower_bound"]]
        if "stages" in message:
            computations, retained = Computations.of(message["computations"]), Retained.of(message["retained"])
            sent = Schedule.of_runs(graph, int(message["stages"]), computations, retained)
            heard = check_schedule(sent, budget).schedule
            schedule = heard if schedule is None or heard.cost <= schedule.cost else schedule
        bound = max((float(entry) for entry in bounds if entry is not None), default=None)
        return Progress(float(message["seconds"]), str(message["doing"]), schedule, bound)
    except ScheduleError as error:
        raise SolverError(f"the strategy's schedule is refused: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise SolverError(f"the worker sent a progress message that cannot be read: {error!r}") from None
