"""One training step by a plan, as a function that autograd can differentiate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.fx import Node

from remat_explorer.capture.operations.program import Registers
from remat_explorer.capture.step.autocast import no_autocast
from remat_explorer.capture.step.placement import exact_kernels
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.halves import Halves
from remat_explorer.runtime.shortage import explained_shortage


class TrainingRun:
    """One forward pass and the backward pass that belongs to it.

    Args:
        halves: what runs.
        model: whose parameters and buffers are read; new buffer contents are written when the forward pass ends.
        tensors: the plain inputs, as `TrainingStep.tensors` gives them.
    """

    def __init__(self, halves: Halves, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> None:
        self.halves, self.model = halves, model
        self._residents: Registers = halves.program.bind(model, tensors, tangents=False)
        self._saved: list[Any] = []
        self._over = False
        self._versions: dict[Node, int] = {}

    def forward(self) -> list[torch.Tensor]:
        """Run the forward half; every output.

        Raises:
            ExecutionError: if memory runs out, with the statement where it did.
        """
        halves = self.halves
        with exact_kernels(), no_autocast(), torch.no_grad(), explained_shortage(halves.plan, self._forget):
            results, self._saved = halves.forward(self._residents)
            self._write_buffers(results)
        named = zip(halves.early, results, strict=True)
        outputs = [tensor for result, tensor in named if result.kind == "output"]
        self._versions = {node: self._residents[node]._version for node in halves.later if node in self._residents}
        self._residents = {node: self._residents[node] for node in self._versions}
        self._outputs = outputs  # the person may write to them, which must not go unnoticed
        self._output_versions = [output._version for output in outputs]
        return outputs

    def backward(self, tangents: dict[int, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run the backward half; the gradient of each parameter that has one, by name.

        Args:
            tangents: gradients of outputs, by the number of the output.

        Raises:
            ExecutionError: if it ran already, if something that it needs was written to since the forward pass, or if
                memory runs out.
        """
        halves = self.halves
        if self._over:
            raise ExecutionError(
                "this backward pass ran already, and what it needs is freed; call the model again. A plan runs once: "
                "retain_graph=True has no effect on it"
            )
        self._require_unchanged()
        self._over = True
        for entry in halves.program.inputs:
            if entry.kind == "tangent" and entry.node in halves.later:
                self._residents[entry.node] = _laid_out(tangents[entry.place], entry.node.meta["val"])
        with exact_kernels(), no_autocast(), torch.no_grad(), explained_shortage(halves.plan, self._forget):
            residents, self._residents = self._residents, {}
            results = halves.backward(residents, self._saved)
            del residents
        gradients: dict[str, torch.Tensor] = {}
        with torch.no_grad():
            for result, tensor in zip(halves.late, results, strict=True):
                if result.kind == "gradient":
                    gradients[result.name] = tensor
                else:
                    self.model.get_buffer(result.name).copy_(tensor)
        return gradients

    def _write_buffers(self, results: list[torch.Tensor]) -> None:
        """Write the new contents; old ones that the backward half reads take the place of the new, which stays."""
        nodes = {entry.name: entry.node for entry in self.halves.program.inputs if entry.kind == "buffer"}
        for result, new in zip(self.halves.early, results, strict=True):
            if result.kind != "buffer":
                continue
            buffer, node = self.model.get_buffer(result.name), nodes[result.name]
            old = buffer.clone() if node in self.halves.later else None
            buffer.copy_(new)
            if old is not None and not any(_share_memory(new, tensor) for tensor in self._saved):
                new.copy_(old)
                old = new  # in memory in any case, so that the copy can go
            if old is not None:
                self._residents[node] = old

    def _require_unchanged(self) -> None:
        for entry in self.halves.program.inputs:
            version = self._versions.get(entry.node)
            if version is not None and self._residents[entry.node]._version != version:
                what = f"{entry.kind} {entry.name!r}" if entry.name else f"input tensor {entry.place}"
                raise ExecutionError(
                    f"{what} was written to between the forward pass and its backward pass, which reads it; step the "
                    "optimizer and reuse input tensors only after backward"
                )
        for number, output in enumerate(self._outputs):
            if output._version != self._output_versions[number]:
                raise ExecutionError(
                    f"output {number} was written to in place before backward; use the operation that is not in place"
                )
        del self._outputs

    def _forget(self) -> None:
        """Let go of every tensor, so that the process can go on after it ran out of memory."""
        self._saved, self._residents, self._outputs = [], {}, []


class PlannedStep(torch.autograd.Function):
    """Autograd's view of a `TrainingRun`: from parameters to the outputs that have gradients."""

    @staticmethod
    def forward(ctx: Any, run: TrainingRun, others: list[torch.Tensor], *parameters: torch.Tensor) -> Any:
        """The outputs that have gradients; the others are appended to ``others`` in their places, None elsewhere."""
        outputs = run.forward()
        ctx.run = run
        with_gradient = {entry.place for entry in run.halves.program.inputs if entry.kind == "tangent"}
        ctx.numbers = sorted(with_gradient)
        others += [None if number in with_gradient else output for number, output in enumerate(outputs)]  # type: ignore[misc]
        return tuple(outputs[number].detach() for number in ctx.numbers)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *tangents: torch.Tensor) -> Any:
        """The gradients of the parameters, in the order of `parameter_names`."""
        gradients = ctx.run.backward(dict(zip(ctx.numbers, tangents, strict=True)))
        return None, None, *(gradients.pop(name) for name in parameter_names(ctx.run.halves))


def parameter_names(halves: Halves) -> list[str]:
    """The parameters that get a gradient."""
    return [result.name for result in halves.program.results if result.kind == "gradient"]


def train(halves: Halves, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Every output of a forward pass, tied to the parameters of ``model`` for autograd."""
    run = TrainingRun(halves, model, tensors)
    others: list[Any] = []
    outputs = list(PlannedStep.apply(run, others, *(model.get_parameter(name) for name in parameter_names(halves))))
    return [outputs.pop(0) if other is None else other for other in others]


def _laid_out(tangent: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The gradient of an output with the strides for which the plan was made."""
    if tangent.stride() == expected.stride():
        return tangent
    return torch.empty_strided(expected.shape, expected.stride(), dtype=tangent.dtype, device=tangent.device).copy_(
        tangent
    )


def _share_memory(first: torch.Tensor, second: Any) -> bool:
    return isinstance(second, torch.Tensor) and (
        first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    )
