"""How a graph was captured, kept with it so that its operations can be found again when its schedule runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}  # tensors of state for each parameter, as large as the parameter
KINDS = {  # of alternative implementations: whether the kind is bit-equal to PyTorch's own on the CPU; see exactness.py
    "activations": True,  # the backward pass of ReLU from its input, of ReLU6 from its input or output
    "masks": True,  # of ReLU, ReLU6 and dropout, in bits; ReLU6 of NaN passes no gradient
    "replay": True,  # of dropout, whose mask is drawn again from the generator's state
    "pooling": True,  # max pooling by one byte an output, or by indices found again
    "statistics": True,  # batch normalization computed again with its saved statistics
    "input-gradients": True,  # of a convolution, without its input
    "attention": True,  # whose backward pass computes the forward pass again
    "lean": False,  # backward of batch normalization without a temporary
    "output-activated": False,  # backward of batch and layer normalization from the output
    "cross-entropy": False,  # from one number a row
    "chunks": False,  # convolutions of a few samples at a time
    "algorithms": False,  # convolutions and attention by other kernels, or with channels last in memory
}


@dataclass(frozen=True)
class CaptureOptions:
    """What `remat_explorer.capture` was asked for.

    Attributes:
        contract: whether operations were joined where no schedule worth having is lost.
        split_convolution_backward: whether a convolution's input gradient is an operation of its own.
        optimizer: whose state counts as resident, a key of `OPTIMIZERS`, or None for none.
        fake: whether shapes and storages are those of FakeTensors, not of a run.
        implementations: kinds of alternative implementations that operations have, keys of `KINDS` in their order.

    Raises:
        UnknownNameError: if there is no such optimizer, or kind.

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

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", str(self.optimizer), OPTIMIZERS)
        object.__setattr__(self, "implementations", kinds_of(self.implementations))


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
