"""What forward does to attributes, and whether a plan, which does not run forward, can do without."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from remat_explorer.capture.attributes import Changes, InputEntry, Place
from remat_explorer.capture.dry_run import dry_run_forward, has_placeholder
from remat_explorer.capture.inputs_and_outputs import Loss
from remat_explorer.capture.snapshots import ABSENT, Snapshot
from remat_explorer.capture.variables import Variable
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.assumptions.differences import innermost, words

_INSTEAD = (
    "return it from forward, or keep it in a buffer (register_buffer), which plans update; a count belongs in the "
    "training loop, and state that begins anew in each step is reset by forward itself"
)


def settled_attributes(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Loss | None, changes: Changes
) -> Mapping[Place, Snapshot]:
    """What the attributes that forward changes hold in the end, if they come to rest in one pass, as caches do.

    What each pass leaves behind and none reads, such as attention maps, is there with the kind "left" and with what a
    pass left. A plan does not make it, of which a warning is given.

    Args:
        changes: what a traced pass changed; without any nothing is run.

    Raises:
        ExecutionError: if an attribute would be stale in a step that a plan does, since a plan does not run forward.
    """
    _require_own_inputs(model, changes)
    changes = {place: change for place, change in changes.items() if not isinstance(place[0], InputEntry)}
    if not changes:
        return {}
    try:
        found = dry_run_forward(model, args, kwargs, loss)
    except Exception as error:  # whatever a person's model does without numbers
        raise ExecutionError(
            f"{_change(model, changes)}, and whether a second pass would change it again cannot be told "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). A plan does not run "
            "forward, so it could become stale. If it is a cache that the first pass fills, run the model once before "
            f"rematerialize; else {_INSTEAD}"
        ) from error
    if found.changed_every_pass:
        again = {place: changes.get(place, change) for place, change in found.changed_every_pass.items()}
        raise ExecutionError(
            f"{_change(model, again)}, in every pass anew. A plan does not run forward, so it would be stale: "
            f"{_INSTEAD}"
        )
    if found.changed_from_data:
        raise ExecutionError(
            f"{_change(model, found.changed_from_data)}, in the first pass alone, which depends on its inputs or "
            "computes something else than later ones. A plan is for all steps: run the model once before rematerialize"
        )
    new = {
        place: changes[place]
        for place in found.write_only
        if place in changes and not has_placeholder(changes[place][0])
    }
    if new:
        warnings.warn(
            f"{_change(model, new)}. A plan does not run forward: after its steps such attributes are not there, and "
            "to compute with them is an error. Return from forward what is needed",
            stacklevel=5,
        )
    return {**found.changed_once, **{place: Snapshot("left", after) for place, after in found.write_only.items()}}


def _require_own_inputs(model: nn.Module, changes: Changes) -> None:
    """Refuse what forward writes into containers of its caller, and warn where it returns them or takes out of them."""
    for place, change in changes.items():
        given = place[0]
        if not isinstance(given, InputEntry):
            continue
        if given.is_taken:
            what = f"{given.words} away" if change[1] == ABSENT else f"entries out of {given.words}"
            warnings.warn(
                f"forward takes {what}. A plan leaves its inputs as they are: after its steps it is still there",
                stacklevel=6,
            )
            continue
        words = _change(model, {place: change})
        if not given.is_returned:
            raise ExecutionError(
                f"{words}. A plan does not run forward, and its caller would not find it there: return it from forward"
            )
        warnings.warn(
            f"{words}. A plan leaves its inputs as they are: read this from what the model returns (beside a loss it "
            "is there with loss=rx.loss_elsewhere)",
            stacklevel=6,
        )


def _change(model: nn.Module, changes: Changes) -> str:
    (path, name), change = next(iter(changes.items()))
    what, before, after = innermost("" if isinstance(path, Variable) else name, *change)
    others = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
    if isinstance(path, Variable):
        at = f", at {what.removeprefix('.')}" if what else ""
        return f"forward or the loss changes {path.words}{at}{others}, from {words(before)} to {words(after)}"
    kind = type(model.get_submodule(path)).__name__
    return (
        f"forward changes the attribute {what} of {f'{path!r} ({kind})' if path else f'the model ({kind})'}{others}, "
        f"from {words(before)} to {words(after)}"
    )
