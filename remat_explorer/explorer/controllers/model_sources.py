"""Where a model of a given name comes from: the person's own, the zoo, or a file of the working directory."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remat_explorer.errors import ModelError, RematError, UnknownNameError
from remat_explorer.explorer.state.implementation_choices import kinds_to_capture
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph
from remat_explorer.model_source import as_model_errors, is_model_file, load_model_file
from remat_explorer.permissions import Permissions

TEACHING = ("chain", "linear32", "mlp", "residual_net")
# Sizes to begin with: a quarter of the memory or more, mostly a half, can be saved, and a laptop executes a step in
# seconds (of vgg, fcn8 and the transformers, with their many parameters, a measurement takes a minute or two). The
# large language and diffusion models run on no laptop; they are solved and studied.
DEFAULT_SIZES: dict[str, dict[str, int]] = {
    "bert": {"batch": 8, "sequence": 128},
    "chain": {"batch": 4096},
    "densenet121": {"batch": 16, "image": 64},
    "densenet161": {"batch": 32, "image": 64},
    "dit_xl": {"batch": 8, "image": 256},
    "fcn8": {"batch": 16, "image": 256},
    "googlenet": {"batch": 32, "image": 64},
    "gpt2": {"batch": 8, "sequence": 128},
    "linear32": {"batch": 8, "image": 64},
    "llama3.2_1b": {"batch": 1, "sequence": 2048},
    "llama3_70b": {"batch": 1, "sequence": 8192},
    "llama3_8b": {"batch": 1, "sequence": 8192},
    "mamba_130m": {"batch": 1, "sequence": 512},
    "mixtral_8x7b": {"batch": 1, "sequence": 8192},
    "mlp": {"batch": 8192},
    "mobilenet_v1": {"batch": 32, "image": 64},
    "mobilenet_v2": {"batch": 32, "image": 64},
    "qwen2.5_0.5b": {"batch": 1, "sequence": 1024},
    "qwen3_8b": {"batch": 1, "sequence": 4096},
    "residual_net": {"batch": 32, "image": 32},
    "resnet18": {"batch": 64, "image": 112},
    "resnet50": {"batch": 64, "image": 64},
    "segnet": {"batch": 8, "image": 160},
    "stable_diffusion": {"batch": 4, "image": 512},
    "unet": {"batch": 8, "image": 160},
    "unet_monet": {"batch": 4, "image": 128},
    "vgg16": {"batch": 128, "image": 64},
    "vgg19": {"batch": 128, "image": 64},
    "vit": {"batch": 16, "image": 160},
    "whisper_small": {"batch": 8, "sequence": 448},
}
NO_MODULE = "This is a graph without a module, so nothing can run."
MAX_WEIGHT_BYTES = 2**30  # of a model of the zoo that the explorer also runs, bytes
NO_WEIGHTS = "This model's weights are not made here, because they are large, so nothing can run."
_FUNCTION = "make_model"
MAX_LISTED, _MAX_READ, _MAX_FILE_BYTES = (
    20,
    300,
    500_000,
)  # files at most, files that are opened at most, bytes of a file at most
_DEFINITION = re.compile(rf"^(?:async\s+)?def\s+{_FUNCTION}\b", re.MULTILINE)
_DEFAULT_MODEL = "residual_net"


class ModelSources:
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
    >>> sources = ModelSources(graph=linear(8))
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
            self.first, self._own = self._free(graph.name), graph_loader(graph)
        elif model is None or isinstance(model, str):
            self.first = model or _DEFAULT_MODEL
            self._require(self.first)
        else:
            self.first, self._own = self._free(type(model).__name__), module_loader(model, tuple(args), kwargs, loss)
            self.device = _home(model)

    def names(self) -> list[str]:
        """What the list of models offers: the person's own first, the zoo by groups, and files that may be loaded.

        Where all may, these are the files of the working directory.
        """
        named = self._permissions.models
        files = list_model_files(Path.cwd()) if named is None else named
        return list(dict.fromkeys([self.first, *_zoo(), *files] if self._own else [*_zoo(), *files]))

    def has_sizes(self, name: str) -> bool:
        """Whether batch and image size of a model can be chosen."""
        return not (self._own and name == self.first) and not is_model_file(name)

    def load(self, state: State) -> LoadedModel:
        """The state's model.

        Raises:
            RematError: if there is none of this name, it may not be loaded, or it cannot be captured.
        """
        if self._own is not None and state.model == self.first:
            return self._own(state)
        self._require(state.model)
        return load_from_file(state) if is_model_file(state.model) else load_zoo_model(state)

    def _require(self, name: str) -> None:
        if is_model_file(name):
            self._permissions.require_model(name)
        elif name not in _zoo():
            raise UnknownNameError("model", name, _zoo())

    def _free(self, name: str) -> str:
        return f"{name} (own)" if name in _zoo() else name


@dataclass(frozen=True)
class LoadedModel:
    """A graph, what to execute it with or why there is nothing, and the sizes that the zoo chose."""

    graph: Graph
    inputs: ModuleInputs | None = None
    batch: int = 0
    image: int | tuple[int, int] | None = None
    no_inputs: str = NO_MODULE


@dataclass(frozen=True)
class ModuleInputs:
    """What to execute: a module, its example inputs, and the loss of its output."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None = None
    loss: Any = None

    @property
    def arguments(self) -> tuple[Any, tuple[Any, ...], dict[str, Any] | None, Any]:
        """Module, args, kwargs and loss, as `capture`, `profile` and `measure` take them."""
        return self.module, self.args, self.kwargs, self.loss

    def on(self, device: str) -> ModuleInputs:
        """The same on a device, where they are captured, measured and executed; as they are if they lie there.

        Raises:
            ExecutionError: as `remat_explorer.capture.model_placement.place`; tensors without content stay as they are.
        """
        from remat_explorer.capture import model_device, place, torch_device

        home = model_device(self.module, self.args, self.kwargs)
        if home.type == "meta" or home == torch_device(device):
            return self
        placed = place(self.module, self.args, self.kwargs, device)
        return ModuleInputs(placed.model, placed.args, placed.kwargs, self.loss)


def load_zoo_model(state: State) -> LoadedModel:
    """The zoo's model of the state's name, batch and image size."""
    from remat_explorer.capture import capture, torch_device
    from remat_explorer.models import load

    torch_device(state.device)  # what the explorer shows can also be run
    begin = DEFAULT_SIZES.get(state.model, {})
    chosen = load(
        state.model,
        state.batch or begin.get("batch"),
        state.image or begin.get("image"),
        begin.get("sequence"),
        state.device,
    )
    size = chosen.image
    square = size[0] if size and size[0] == size[1] else size
    kinds = kinds_to_capture(state.implementations)
    runs = chosen.weight_bytes <= MAX_WEIGHT_BYTES
    if kinds:
        module = chosen.module if runs else chosen.shapes
        graph = replace(capture(module, chosen.args, implementations=kinds), name=chosen.name)
    else:
        graph = chosen.graph
    return LoadedModel(
        graph, ModuleInputs(chosen.module, chosen.args) if runs else None, chosen.batch, square, NO_WEIGHTS
    )


def module_loader(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Any) -> ModelLoader:
    """The person's own module."""

    def capture_it(state: State) -> LoadedModel:
        from remat_explorer.capture import capture

        kinds, inputs = (
            kinds_to_capture(state.implementations),
            ModuleInputs(module, args, kwargs, loss).on(state.device),
        )
        return LoadedModel(capture(*inputs.arguments, implementations=kinds), inputs)

    return capture_it


def graph_loader(graph: Graph) -> ModelLoader:
    """A graph without a module."""
    return lambda state: LoadedModel(graph)


def load_from_file(state: State) -> LoadedModel:
    """What the function of the state's model, "path/to/file.py:function", makes; the file is read anew.

    Raises:
        ModelError: with file and line, if the file, its function, or the model on its inputs raises.
        UnknownNameError: if the file has no such function.
    """
    from remat_explorer.capture import capture

    text = state.model if not state.model.endswith(".py") else f"{state.model}:{_FUNCTION}"
    made = load_model_file(text)
    path, inputs = Path(text.rpartition(":")[0]), ModuleInputs(made.module, made.make_args(), made.kwargs, made.loss)
    inputs = inputs.on(state.device)
    try:
        with as_model_errors(path, f"capturing the model of {str(path)!r}", leave=RematError):
            kinds = kinds_to_capture(state.implementations)
            graph = capture(*inputs.arguments, implementations=kinds)
            return LoadedModel(graph, inputs)
    except RematError as error:  # which names the line, where the model itself went wrong
        raise error if isinstance(error, ModelError) else ModelError(f"{str(path)!r}: {error}") from error


def list_model_files(folder: Path) -> list[str]:
    """Files of a folder that define `make_model`, as "file.py:make_model", in alphabetical order.

    Nothing is imported or run; a file with a syntax error is listed, so that choosing it tells the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = Path(folder, "net.py").write_text("def make_model(): ...")
    ...     written = Path(folder, "other.py").write_text("def test(): ...")
    ...     list_model_files(Path(folder))
    ['net.py:make_model']
    """
    try:
        files = sorted(folder.glob("*.py"))[:_MAX_READ]
    except OSError:
        return []
    names = []
    for file in files:
        with contextlib.suppress(OSError):
            if (
                file.is_file()
                and file.stat().st_size <= _MAX_FILE_BYTES
                and _defines(file.read_text("utf-8", "replace"))
            ):
                names.append(f"{file.name}:{_FUNCTION}")
        if len(names) == MAX_LISTED:
            break
    return names


ModelLoader = Callable[[State], LoadedModel]


def _defines(source: str) -> bool:
    if _FUNCTION not in source:
        return False
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _DEFINITION.search(source) is not None
    return any(isinstance(node, ast.FunctionDef) and node.name == _FUNCTION for node in body)


def _home(module: Any) -> str:
    from remat_explorer.capture import model_device

    home = model_device(module)
    return "cpu" if home.type == "meta" else str(home)


def zoo_groups() -> dict[str, list[str]]:
    """The models of the zoo by what they are for, from a table here: the zoo itself imports torch.

    >>> {name: models[0] for name, models in zoo_groups().items()}
    {'teaching': 'chain', 'vision': 'densenet121', 'language and speech': 'bert'}
    """
    groups: dict[str, list[str]] = {"teaching": [], "vision": [], "language and speech": []}
    for name, sizes in DEFAULT_SIZES.items():
        kind = "teaching" if name in TEACHING else "language and speech" if "sequence" in sizes else "vision"
        groups[kind].append(name)
    return groups


def _zoo() -> list[str]:
    """Names of the zoo's models, by their groups."""
    return [name for group in zoo_groups().values() for name in group]
