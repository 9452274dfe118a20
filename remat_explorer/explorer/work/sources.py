"""Where a model of a given name comes from: the person's own, the zoo, or a file of the working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.state.begin_sizes import BEGIN
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.loading import Loaded, from_graph, from_module, from_zoo
from remat_explorer.explorer.work.model_files import from_file, list_model_files
from remat_explorer.graph import Graph
from remat_explorer.model_source import is_model_file
from remat_explorer.permissions import Permissions

DEFAULT_MODEL = "residual_net"


class Sources:
    """All models that can be chosen, by name.

    Args:
        model: name of a zoo model, "path/to/file.py:function", a module, or None.
        args: example inputs of a module.
        kwargs: its keyword inputs.
        loss: as for `remat_explorer.capture`.
        graph: a training graph instead of a model.
        permissions: which model files may be loaded.

    Attributes:
        first: name of the model that was given.
        nothing_chosen: whether none was.
        has_choices: whether a graph with alternative implementations was given.
        device: where the module that was given lies, or "cpu".

    Raises:
        UnknownNameError: if ``model`` is a name that does not exist; near matches are listed.

    >>> from remat_explorer.instances import linear
    >>> sources = Sources(graph=linear(8))
    >>> sources.names()[0], "vgg16" in sources.names(), sources.has_sizes("vgg16"), sources.has_sizes(sources.first)
    ('linear8', True, True, False)
    """

    def __init__(
        self,
        model: Any = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        loss: Any = None,
        graph: Graph | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        self._permissions = permissions or Permissions()
        self.nothing_chosen = model is None and graph is None
        self.has_choices = graph is not None and graph.has_choices
        self._own, self.device = None, "cpu"
        if graph is not None:
            self.first, self._own = self._free(graph.name), from_graph(graph)
        elif model is None or isinstance(model, str):
            self.first = model or DEFAULT_MODEL
            self._require(self.first)
        else:
            self.first, self._own = self._free(type(model).__name__), from_module(model, tuple(args), kwargs, loss)
            self.device = _home(model)

    def names(self) -> list[str]:
        """What the list of models offers: the person's own first, the zoo, and the model files that may be loaded.

        Where all may, these are the files of the working directory.
        """
        named = self._permissions.models
        files = list_model_files(Path.cwd()) if named is None else named
        return list(dict.fromkeys([self.first, *_zoo(), *files] if self._own else [*_zoo(), *files]))

    def has_sizes(self, name: str) -> bool:
        """Whether batch and image size of a model can be chosen."""
        return not (self._own and name == self.first) and not is_model_file(name)

    def load(self, state: State) -> Loaded:
        """The state's model.

        Raises:
            RematError: if there is none of this name, it may not be loaded, or it cannot be captured.
        """
        if self._own is not None and state.model == self.first:
            return self._own(state)
        self._require(state.model)
        return from_file(state) if is_model_file(state.model) else from_zoo(state)

    def _require(self, name: str) -> None:
        if is_model_file(name):
            self._permissions.require_model(name)
        elif name not in _zoo():
            raise UnknownNameError("model", name, _zoo())

    def _free(self, name: str) -> str:
        return f"{name} (own)" if name in _zoo() else name


def _home(module: Any) -> str:
    from remat_explorer.capture.model_placement import model_device

    home = model_device(module)
    return "cpu" if home.type == "meta" else str(home)


def _zoo() -> list[str]:
    """Names of the zoo's models, from a table here: the zoo itself imports torch, for which no screen should wait."""
    return list(BEGIN)
