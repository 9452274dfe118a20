"""Names that people recognize: the module's path and the operator, `features.3 conv2d`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.fx import Node

from remat_explorer.capture.in_place_layouts import written_in_layout
from remat_explorer.capture.operations.convolution_arguments import ConvolutionArguments, wanted_gradients

MODULE_PATH = "remat_explorer.module_path"  # a key in a node's meta
AROUND = "remat_explorer.around"  # the modules around it that run once
SOURCE_LINE = "remat_explorer.source_line"  # another
SOURCE_FILE = "remat_explorer.source_file"  # and the file that it is in
TRAINED = "remat_explorer.trained"  # in a module's meta: lines that read constants with a gradient, by their names
LABEL = "remat_explorer.label"  # a third: what a value is that only other implementations write
_KNOWN = {
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "addmm": "linear",
    "sigmoid_in_layout": "sigmoid",
    "laid_out": "copy",
    "threshold_backward": "relu_backward",
    "_to_copy": "cast",
}
_PREFIXES = ("_", "native_")
_SUFFIXES = ("_with_indices", "_data", "_forward", "_functional")


def operator_name(node: Node) -> str:
    """The operator of a call, without the marks that tell its kernels apart."""
    target: Any = node.args[0] if node.target is written_in_layout else node.target
    name = str(getattr(target, "overloadpacket", getattr(target, "__name__", target)))
    name = name.removeprefix("aten.").removeprefix("remat_explorer.")
    if name in _KNOWN:
        return _KNOWN[name]
    if name.startswith("convolution"):
        return _convolution_name(node, backward=name.endswith("backward"))
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _without_suffixes(name.removesuffix("_"))


def _convolution_name(node: Node, backward: bool) -> str:
    """`conv2d`, `conv_transpose1d`, and in the backward pass which of its gradients are computed."""
    weight = node.args[2 if backward else 1]
    size = weight.meta["val"].dim() - 2  # type: ignore[union-attr]
    forward = f"conv{'_transpose' if ConvolutionArguments.of(node).transposed else ''}{size}d"
    if not backward:
        return forward
    to_input, to_weight, to_bias = wanted_gradients(node)
    if not (to_weight or to_bias):
        return f"{forward}_input_gradient"
    return f"{forward}_backward" if to_input else f"{forward}_weight_gradient"


def _without_suffixes(name: str) -> str:
    if name.endswith("_backward"):
        return _without_suffixes(name.removesuffix("_backward")) + "_backward"
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return _without_suffixes(name.removesuffix(suffix))
    return name


def operation_name(calls: Iterable[Node], results: Iterable[str]) -> str:
    """The path of the module and what runs there, joined by + where several calls became one operation.

    Args:
        calls: the operators of the operation; ``meta[MODULE_PATH]`` has the module that they come from.
        results: for each output the name of the result that it is, or "".
    """
    calls, results = list(calls), list(results)
    operators = [operator_name(call) for call in calls]
    what = " + ".join(operators)
    only_gradients = all(result.endswith(".grad") for result in results)
    if only_gradients and not any(name.endswith(("_backward", "_scatter")) for name in operators):
        what = "gradient of " + ", ".join(result.split(".")[-2] for result in results)  # not "sum + mm"
    path = calls[0].meta.get(MODULE_PATH, "")
    return f"{path} {what}" if path else what


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The same names, with a number after each that was there before.

    >>> unique(["relu", "add", "relu", "relu"])
    ('relu', 'add', 'relu (2)', 'relu (3)')
    """
    taken: set[str] = set()
    distinct = []
    for name in names:
        number, candidate = 1, name
        while candidate in taken:
            number += 1
            candidate = f"{name} ({number})"
        taken.add(candidate)
        distinct.append(candidate)
    return tuple(distinct)
