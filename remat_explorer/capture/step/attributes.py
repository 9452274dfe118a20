"""What the attributes of a model's modules hold, and which of them a forward pass changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from remat_explorer.capture.step.contents import ABSENT, Content, Contents

Place = tuple[str, str]  # path of a module, and the name of its attribute
Changes = dict[Place, tuple[Content, Content]]  # before and after


class Attributes:
    """Everything that the attributes of a model's modules hold now, parameters and buffers apart.

    >>> model = nn.Dropout(0.1)
    >>> before = Attributes(model)
    >>> model.p = 0.2
    >>> list(before.changes())
    [('', 'p')]
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        contents = Contents(model)
        self._held = {place: contents.of_attribute(place[1], value) for place, value in _attributes(model)}
        self._guards = contents.guards  # these keep everything that was there
        for module in model.modules():
            self._guards.add_mapping(vars(module))

    def restore(self) -> None:
        """Let everything hold what it held, in place."""
        self._guards.restore()

    def changes(self) -> Changes:
        """What holds something else now."""
        if self._guards.hold():
            return {}
        contents = Contents(self._model)
        now = {place: contents.of_attribute(place[1], value) for place, value in _attributes(self._model)}
        pairs = {place: (self._held.get(place, ABSENT), now.get(place, ABSENT)) for place in {**self._held, **now}}
        return {place: (before, after) for place, (before, after) in pairs.items() if before != after}


def _attributes(model: nn.Module) -> Iterator[tuple[Place, Any]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_flat_weight_refs"):  # the last only tells when weights change
                yield (path, name), value
