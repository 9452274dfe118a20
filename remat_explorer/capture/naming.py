"""Names that people recognize: the module's path and the operator, `features.3 conv2d`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch.fx import Node

_KNOWN = {
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "addmm": "linear",
    "threshold_backward": "relu_backward",
    "_to_copy": "cast",
}
_PREFIXES = ("_", "native_")
_SUFFIXES = ("_with_indices", "_data", "_forward", "_functional")


def operator_name(node: Node, dimensions: int | None = None) -> str:
    """The operator of a node, without the marks that tell its kernels apart.

    Args:
        node: a call of an ATen operator.
        dimensions: dimensions of the weight, which tell `conv2d` from `conv1d`.
    """
    name = str(getattr(node.target, "overloadpacket", node.target)).removeprefix("aten.")
    if name in _KNOWN:
        return _KNOWN[name]
    if name.startswith("convolution"):
        transposed = "_transpose" if node.args[7 if name.endswith("backward") else 6] else ""
        size = f"{dimensions - 2}d" if dimensions else ""
        return f"conv{transposed}{size}" + ("_backward" if name.endswith("backward") else "")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _without_suffixes(name)


def _without_suffixes(name: str) -> str:
    if name.endswith("_backward"):
        return _without_suffixes(name.removesuffix("_backward")) + "_backward"
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return _without_suffixes(name.removesuffix(suffix))
    return name


def operation_name(
    calls: Iterable[Node], paths: Mapping[Node, str], weights: Mapping[Node, int], results: Iterable[str]
) -> str:
    """The path of the module and what runs there, joined by + where several calls became one operation.

    Args:
        calls: the operators of the operation.
        paths: for each node the module that it comes from.
        weights: for each convolution the dimensions of its weight.
        results: for each output the name of the result that it is, or "".
    """
    calls, results = list(calls), list(results)
    operators = [operator_name(call, weights.get(call)) for call in calls]
    what = " + ".join(operators)
    only_gradients = all(result.endswith(".grad") for result in results)
    if only_gradients and not any(name.endswith("_backward") for name in operators):
        what = "gradient of " + ", ".join(result.split(".")[-2] for result in results)  # not "sum + mm"
    path = paths.get(calls[0], "")
    return f"{path} {what}" if path else what


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The same names, with a number after each that was there before.

    >>> unique(["relu", "add", "relu", "relu"])
    ('relu', 'add', 'relu (2)', 'relu (3)')
    """
    taken: set[str] = set()
    found = []
    for name in names:
        number, candidate = 1, name
        while candidate in taken:
            number += 1
            candidate = f"{name} ({number})"
        taken.add(candidate)
        found.append(candidate)
    return tuple(found)
