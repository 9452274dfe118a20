"""What the attributes of a model's modules and variables around it hold, and which of them a forward pass changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from remat_explorer.capture.step.contents import ABSENT, Content, Contents
from remat_explorer.capture.step.variables import ABSENT as NOTHING
from remat_explorer.capture.step.variables import Variable

Place = tuple[str | Variable, str]  # path of a module, and the name of its attribute; or a variable, and its words
Changes = dict[Place, tuple[Content, Content]]  # before and after


class Attributes:
    """Everything that the attributes of a model's modules hold now, parameters and buffers apart.

    Args:
        model: the model.
        variables: other places that are looked at.

    >>> model = nn.Dropout(0.1)
    >>> before = Attributes(model)
    >>> model.p = 0.2
    >>> list(before.changes())
    [('', 'p')]
    """

    def __init__(self, model: nn.Module, variables: Sequence[Variable] = ()) -> None:
        self._model = model
        contents = Contents(model)
        self._variables = [(variable, variable.get()) for variable in variables]
        self._held = _contents(contents, model, variables)
        self._guards = contents.guards  # these keep everything that was there
        for module in model.modules():
            self._guards.add_mapping(vars(module))

    def restore(self) -> None:
        """Let everything hold what it held, in place."""
        self._guards.restore()
        for variable, value in self._variables:
            if variable.get() is not value:
                variable.put(value)

    def changes(self) -> Changes:
        """What holds something else now."""
        if self._guards.hold() and all(variable.get() is value for variable, value in self._variables):
            return {}
        variables = [variable for variable, _ in self._variables]
        now = _contents(Contents(self._model), self._model, variables)
        pairs = {place: (self._held.get(place, ABSENT), now.get(place, ABSENT)) for place in {**self._held, **now}}
        return {place: (before, after) for place, (before, after) in pairs.items() if before != after}


def _contents(contents: Contents, model: nn.Module, variables: Sequence[Variable]) -> dict[Place, Content]:
    held = {place: contents.of_attribute(place[1], value) for place, value in _attributes(model)}
    for variable in variables:
        value = variable.get()
        held[variable, variable.words] = ABSENT if value is NOTHING else contents.of(value)
    return held


def _attributes(model: nn.Module) -> Iterator[tuple[Place, Any]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_flat_weight_refs"):  # the last only tells when weights change
                yield (path, name), value
