"""A second way to trace: `torch.export` first, for models that ask whether they are being exported.

Libraries such as transformers look into attention masks to save work, and know better only while they are exported.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from remat_explorer.capture.step.borrowed import borrowed
from remat_explorer.capture.step.kept_casts import with_kept_casts
from remat_explorer.capture.step.training_step import TrainingStep, unwrapped
from remat_explorer.errors import CaptureError


class ExportedStep(nn.Module):
    """A training step whose forward pass is an exported graph; tensors and their names are those of ``step``.

    Args:
        step: the step to export.
        tensors: its inputs, real or FakeTensors.
        enter: told the path of the module at each operation, and those of the modules around it.

    Raises:
        Exception: whatever `torch.export` raises for this model.
    """

    def __init__(
        self,
        step: TrainingStep,
        tensors: tuple[torch.Tensor, ...],
        enter: Callable[[str, list[str]], None] = lambda *_: None,
    ) -> None:
        super().__init__()
        self._parameters, self._buffers = step._parameters, step._buffers
        self.training = step.training
        quiet = contextlib.redirect_stderr(io.StringIO())
        with borrowed(step.model, _on_one_device(step)), _only_traceable_gradients(), quiet:
            program = torch.export.export(_Plain(step), tensors, strict=False)
        self._graph = (program.module(), enter)  # in a tuple: its parameters are those of the step
        self._aliases = step.aliases()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        graph, enter = self._graph
        held = {**self._parameters, **self._buffers}
        lent = {f"model.{path}": held[name] for path, name in self._aliases.items()}
        with with_kept_casts():
            return _Retold(graph, lent, enter).run(*tensors)


def _on_one_device(step: TrainingStep) -> dict[int, torch.Tensor]:
    """What stands for each tensor of the model: for one on the meta device the step's FakeTensor, beside the inputs."""
    return {id(own): held if own.device.type == "meta" else own for own, held in step.stand_ins()}


@contextlib.contextmanager
def _only_traceable_gradients() -> Iterator[None]:
    """Refuse what an export silently leaves out: backward passes and hooks that a person wrote."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError("torch.export would leave out a custom autograd Function or a gradient hook")

    before = (vars(torch.autograd.Function).get("apply"), torch.Tensor.register_hook)
    torch.autograd.Function.apply, torch.Tensor.register_hook = classmethod(refuse), refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autograd.Function.apply, torch.Tensor.register_hook = before  # type: ignore[method-assign]


class _Plain(nn.Module):
    """The step as `torch.export` wants it: with the model for a child."""

    def __init__(self, step: TrainingStep) -> None:
        super().__init__()
        self.model = unwrapped(step.model)
        self._step = (step,)
        self.training = step.training

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self._step[0].watched_results_of(self.model, tensors)


class _Retold(Interpreter):
    """Runs an exported graph with other parameters and buffers, and tells in which module it is."""

    def __init__(self, module: GraphModule, lent: Mapping[str, Any], enter: Callable[[str, list[str]], None]) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._lent = lent
        self._enter = enter

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._lent[target] if target in self._lent else super().get_attr(target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        stack = (n.meta.get("nn_module_stack") or {}).values()
        paths = [str(path).removeprefix("model").removeprefix(".") for path, _ in stack]
        if n.op == "call_function" and paths:
            self._enter(paths[-1], paths)
        return super().run_node(n)
