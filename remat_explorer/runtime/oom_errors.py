"""Out of memory: at which statement, what was in memory there, and what was predicted."""

from __future__ import annotations

import contextlib
import linecache
import traceback
from collections.abc import Callable, Iterator

import torch

from remat_explorer.capture import is_out_of_memory
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.offload import Fetch
from remat_explorer.plan import Compute, Free
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.copies import AnyPlan, statement_text
from remat_explorer.runtime.emitter import STATEMENT, statement_of_line

MAX_VALUES_SHOWN = 5  # values named in the message


def live_values_before(plan: AnyPlan, index: int) -> list[int]:
    """Ids of the values in memory when a statement begins, largest first."""
    held: set[int] = set()
    for statement in plan.statements[:index]:
        if isinstance(statement, Compute):
            outputs = plan.graph.outputs(statement.operation, statement.implementation)
            held |= set(outputs) - set(statement.drops)
            held.discard(statement.overwrites)  # type: ignore[arg-type]
        elif isinstance(statement, Free):
            held.discard(statement.value)
        elif isinstance(statement, Fetch):
            held.add(statement.value)
    return sorted(held, key=lambda v: (-plan.graph.values[v].bytes, v))


def oom_error(plan: AnyPlan, index: int | None) -> OutOfMemoryError:
    """The error for running out of memory at a statement, or at an unknown place."""
    advice = "solve with a smaller budget, or take a smaller batch"
    if index is None:
        return OutOfMemoryError(f"memory ran out while the plan ran, predicted {format_bytes(plan.peak)}; {advice}")
    graph, statement = plan.graph, plan.statements[index]
    held = live_values_before(plan, index)
    named = [f"{graph.values[v].name!r} {format_bytes(graph.values[v].bytes)}" for v in held[:MAX_VALUES_SHOWN]]
    if len(held) > MAX_VALUES_SHOWN:
        rest = sum(graph.values[v].bytes for v in held[MAX_VALUES_SHOWN:])
        named.append(f"{len(held) - MAX_VALUES_SHOWN} more with {format_bytes(rest)}")
    alive = ", ".join(named) if named else "nothing"
    return OutOfMemoryError(
        f"memory ran out at {statement_text(plan, index)!r} (statement {index + 1} of {len(plan.statements)}, stage "
        f"{statement.stage}), where {format_bytes(int(plan.timeline.during[index]))} were predicted. In memory were "
        f"{format_bytes(graph.resident_bytes)} of parameters, inputs and buffers, and {alive}; {advice}",
        statement=index,
    )


@contextlib.contextmanager
def explain_oom(plan: AnyPlan, forget: Callable[[], None], at: Callable[[], int | None] | None = None) -> Iterator:
    """Turn running out of memory into an `OutOfMemoryError` that holds on to no tensor.

    ``forget`` lets go of the tensors that the caller holds; ``at`` gives the statement under way, by default the one
    that the failing line of generated code belongs to.
    """
    explained: OutOfMemoryError | None = None
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        explained = oom_error(plan, at() if at is not None else _statement_of(error))
        traceback.clear_frames(error.__traceback__)  # locals there hold tensors
    if explained is not None:
        forget()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            raise explained
        finally:
            explained.__context__ = None  # the old error refers to frames, and those to tensors


def _statement_of(error: BaseException) -> int | None:
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_locals.get("self")
        if frame.f_code.co_name == "forward" and isinstance(module, torch.fx.GraphModule):
            statements = {node.name: node.meta.get(STATEMENT) for node in module.graph.nodes}
            return statement_of_line(linecache.getline(frame.f_code.co_filename, line).rstrip("\n"), statements)
    return None
