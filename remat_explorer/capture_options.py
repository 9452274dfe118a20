"""How a graph was captured, kept with it so that its operations can be found again when its schedule runs."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}  # tensors of state for each parameter, as large as the parameter


@dataclass(frozen=True)
class CaptureOptions:
    """What `remat_explorer.capture` was asked for.

    Attributes:
        contract: whether operations were joined where no schedule worth having is lost.
        split_convolution_backward: whether a convolution's input gradient is an operation of its own.
        optimizer: whose state counts as resident, a key of `OPTIMIZERS`, or None for none.
        fake: whether shapes and storages are those of FakeTensors, not of a run.

    Raises:
        UnknownNameError: if there is no such optimizer.

    >>> CaptureOptions(optimizer="adma")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown optimizer 'adma'; did you mean 'adam'? Known: adam, momentum, sgd
    """

    contract: bool = True
    split_convolution_backward: bool = True
    optimizer: str | None = None
    fake: bool = True

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", str(self.optimizer), OPTIMIZERS)
