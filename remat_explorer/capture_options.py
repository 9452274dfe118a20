"""How a graph was captured, kept with it so that its operations can be found again when its schedule runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError

OPTIMIZER_STATES = {
    "sgd": 0,
    "momentum": 1,
    "adam": 2,
}  # tensors of state for each parameter, as large as the parameter
KINDS = {  # of alternative implementations: whether the kind is bit-equal to PyTorch's own on the CPU; see exactness.py
    "activations": True,  # the backward pass of ReLU from its input, of ReLU6 from its input or output
    "masks": True,  # of ReLU, ReLU6 and dropout, in bits, made when wanted; ReLU6 of NaN passes no gradient
    "replay": True,  # of dropout, whose mask is drawn again from the generator's state
    "pooling": True,  # max pooling by one byte an output, made with it or later, or by indices found again
    "statistics": True,  # batch normalization computed again with its saved statistics
    "input-gradients": True,  # of a convolution, without its input
    "attention": True,  # whose backward pass computes the forward pass again
    "lean": False,  # backward of batch normalization without a temporary
    "output-activated": False,  # backward of batch and layer normalization from the output
    "cross-entropy": False,  # from one number a row; with the product before it, without logits
    "chunks": False,  # convolutions of a few samples, perceptrons of some tokens or hidden features at a time
    "algorithms": False,  # convolutions and attention by other kernels, or with channels last in memory
}
CUDA = "cuda"  # whose kernels a graph is made for, without a device: of the one that costs are of, or of Ampere


@dataclass(frozen=True)
class CaptureOptions:
    """What `remat_explorer.capture` was asked for.

    Attributes:
        contract: whether operations were joined where no schedule worth having is lost.
        split_convolution_backward: whether a convolution's input gradient is an operation of its own.
        optimizer: whose state counts as resident, a key of `OPTIMIZER_STATES`, or None for none.
        fake: whether shapes and storages are those of FakeTensors, not of a run.
        implementations: kinds of alternative implementations that operations have, keys of `KINDS` in their order.
        kernels: the compute capability for whose kernels a graph was made without a device, such as "sm_90", or
            `CUDA` where it is still to be chosen; None for the kernels of the device where the model lay.

    Raises:
        UnknownNameError: if there is no such optimizer, kind, or capability.

    >>> CaptureOptions(optimizer="adma")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown optimizer 'adma'; did you mean 'adam'? Known: adam, momentum, sgd
    """

    contract: bool = True
    split_convolution_backward: bool = True
    optimizer: str | None = None
    fake: bool = True
    implementations: tuple[str, ...] = ()
    kernels: str | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.optimizer not in OPTIMIZER_STATES:
            raise UnknownNameError("optimizer", str(self.optimizer), OPTIMIZER_STATES)
        if self.kernels not in (None, CUDA):
            capability_of(str(self.kernels))
        object.__setattr__(self, "implementations", kinds_of(self.implementations))


def capability_of(kernels: str) -> tuple[int, int]:
    """The compute capability that is written so: (9, 0) for "sm_90"."""
    match = re.fullmatch(r"sm_([1-9]\d?)(\d)", kernels)
    if match is None:
        raise UnknownNameError("compute capability", kernels, [CUDA, "sm_80", "sm_90"])
    return int(match[1]), int(match[2])


def kinds_of(implementations: str | Iterable[str] | None) -> tuple[str, ...]:
    """The kinds that a choice of implementations names, in the order of `KINDS`.

    Args:
        implementations: "exact" for the kinds that are bit-equal, "all", kinds, or None for none.

    Raises:
        UnknownNameError: if there is no such kind.

    >>> kinds_of(["pooling", "masks"]), kinds_of(None)
    (('masks', 'pooling'), ())
    >>> set(kinds_of("all")) - set(kinds_of("exact")) >= {"lean", "chunks"}
    True
    """
    if isinstance(implementations, str):
        named = {"exact": [kind for kind, exact in KINDS.items() if exact], "all": list(KINDS)}
        implementations = named.get(implementations, [implementations])
    chosen = set(implementations or ())
    for kind in sorted(map(str, chosen)):
        if kind not in KINDS:
            raise UnknownNameError("kind of implementations", kind, [*KINDS, "exact", "all"])
    return tuple(kind for kind in KINDS if kind in chosen)
