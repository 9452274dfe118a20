"""Operators whose results have a size that depends on content, with size, strides and type for further arguments.

A graph with them is static. They call the operator that they are made from, and refuse a result of another size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
NAMESPACE = "remat_explorer"
SIZED = (
    aten.nonzero.default,
    aten.masked_select.default,
    aten.index.Tensor,
    aten.repeat_interleave.Tensor,
    aten.bincount.default,
    aten._unique.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
    aten._ctc_loss.Tensor,
    aten._grouped_mm.default,  # its size is static, but torch's fake kernel refuses most types
)
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_MADE: dict[Any, Any] = {}


def with_size(operator: Any) -> Any:
    """The operator that is ``operator`` with size, strides and type of each result for its last keyword arguments.

    >>> nonzero = with_size(aten.nonzero.default)
    >>> layout = {"size0": [2, 1], "stride0": [1, 1], "dtype0": torch.int64}
    >>> nonzero(torch.tensor([0, 5, 7]), **layout).tolist()
    [[1], [2]]
    >>> nonzero(torch.tensor([0, 0, 7]), **layout)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: nonzero gives a result of shape [1, 1], but the plan was made for [2, 1]: \
capture again, with inputs like these
    """
    if operator not in _MADE:
        name = operator._schema.name.removeprefix("aten::")
        if operator._schema.overload_name:
            name += f"_{operator._schema.overload_name}"
        takes, gives = str(operator._schema).split("(", 1)[1].split(" -> ")
        results = range(len(operator._schema.returns))
        sizes = ", ".join(f"int[] size{n}, int[] stride{n}, ScalarType dtype{n}" for n in results)
        marks = "" if "*" in takes else "*, "
        _LIBRARY.define(f"{name}({takes.removesuffix(')')}, {marks}{sizes}) -> {gives}")
        _LIBRARY.impl(name, _checked(operator), "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _empty, lib=_LIBRARY)
        _MADE[operator] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return _MADE[operator]


def fix_sizes(module: GraphModule) -> None:
    """Let every operator of ``SIZED`` in the graph give the size that it had when it was traced."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in SIZED and _depends_on_content(node):
            node.target = with_size(node.target)
            for number, result in enumerate(pytree.tree_leaves(node.meta["val"])):
                layout = (list(result.shape), list(result.stride()), result.dtype)
                named = zip(("size", "stride", "dtype"), layout, strict=True)
                node.kwargs = {**node.kwargs, **{f"{name}{number}": part for name, part in named}}


def _depends_on_content(node: Node) -> bool:
    if node.target is aten._grouped_mm.default:
        return node.meta["val"].dtype != torch.bfloat16
    if node.target is not aten.index.Tensor:
        return True
    indices: Any = node.args[1]
    return any(index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8) for index in indices)


def _layouts(kwargs: dict[str, Any]) -> list[tuple[list[int], list[int], torch.dtype]]:
    """Take size, strides and type of each result out of the keyword arguments."""
    count = sum(name.startswith("size") for name in kwargs)
    return [
        (list(kwargs.pop(f"size{n}")), list(kwargs.pop(f"stride{n}")), kwargs.pop(f"dtype{n}")) for n in range(count)
    ]


def _checked(operator: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        layouts = _layouts(kwargs)
        results = operator(*args, **kwargs)
        for result, (size, _, _) in zip(pytree.tree_leaves(results), layouts, strict=True):
            if list(result.shape) != list(size):
                raise ExecutionError(
                    f"{operator._schema.name.removeprefix('aten::')} gives a result of shape {list(result.shape)}, but "
                    f"the plan was made for {size}: capture again, with inputs like these"
                )
        return results

    return run


def _empty(*args: Any, **kwargs: Any) -> Any:
    """What it gives without content."""
    device = args[0].device
    results = [torch.empty_strided(s, strides, dtype=d, device=device) for s, strides, d in _layouts(kwargs)]
    return tuple(results) if len(results) > 1 else results[0]
