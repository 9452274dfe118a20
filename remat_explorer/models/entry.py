"""One model of the zoo: how it is built, what it is trained for, and at which sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import Task


@dataclass(frozen=True)
class Entry:
    """One model.

    Attributes:
        build: the module without its loss; some layers depend on the size.
        sizes: its published size, and which others it takes.
        task: its inputs, labels and loss.
    """

    build: Callable[[Size], nn.Module]
    sizes: SizeRule
    task: Task
