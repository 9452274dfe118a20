"""What people are told of a captured operation: module, operators, shapes, and the line it comes from."""

from __future__ import annotations

from typing import Any

from remat_explorer.capture.operations.naming import MODULE_PATH, SOURCE_LINE, operator_name
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft
from remat_explorer.operation_details import Details, shape_text


def details_of(draft: OperationDraft, number: dict[StorageDraft, int]) -> Details:
    """The details of an operation; a backward operation has the module and line of its forward operation.

    Args:
        draft: the operation.
        number: for each storage its value id.
    """
    calls = draft.calls
    outputs = sorted(draft.writes, key=number.__getitem__)
    return Details(
        calls[0].meta.get(MODULE_PATH, "") if calls else "",
        " + ".join(operator_name(call) for call in calls),
        tuple(_shape(storage.carrier.meta.get("val")) for storage in outputs),
        next((line for call in calls if (line := call.meta.get(SOURCE_LINE))), ""),
    )


def _shape(result: Any) -> str:
    """The shape of what a node gives; of several results, the first."""
    tensor: Any = result[0] if isinstance(result, tuple | list) and result else result
    return shape_text(tuple(int(size) for size in tensor.shape)) if hasattr(tensor, "shape") else ""
