"""One training step by a plan, as a function that autograd can differentiate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.fx import Node

from remat_explorer.capture.operations.program import Registers
from remat_explorer.capture.step.autocast import no_autocast
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.backward.outputs import Outputs
from remat_explorer.runtime.backward.strides import in_memory_of_their_own, share_memory
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
        with no_autocast(), torch.no_grad(), explained_shortage(halves.plan, self._forget):
            results, self._saved = halves.forward(self._residents)
            self._write_buffers(results)
        named = zip(halves.early, results, strict=True)
        outputs = [tensor for result, tensor in named if result.kind == "output"]
        self._versions = {node: self._residents[node]._version for node in halves.later if node in self._residents}
        self._residents = {node: self._residents[node] for node in self._versions}
        # the person may write to outputs, which must not go unnoticed
        self._saved.reverse()
        self._outputs = Outputs(outputs, halves.output_reads, halves.saved.nodes, self._saved)
        self._saved.reverse()  # the last is popped first
        return outputs

    def backward(self, tangents: dict[int, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
        """Run the backward half; the gradient of each parameter, by name, None of one that no gradient leads to.

        Args:
            tangents: gradients of outputs, by the number of the output; None for an output that was not used.

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
        starts = {
            entry.node: tangents[entry.place]
            for entry in halves.program.inputs
            if entry.kind == "tangent" and entry.node in halves.later
        }
        if all(tangent is not None and _as_captured(tangent, node) for node, tangent in starts.items()):
            half = halves.planned_backward
        else:
            half = halves.partial_backward(frozenset(node for node, tangent in starts.items() if tangent is None))
        self._require_unchanged(half.reads)
        self._over = True
        del self._outputs
        with no_autocast(), torch.no_grad(), explained_shortage(halves.plan, self._forget):
            residents, self._residents = {**self._residents, **starts}, {}
            results = half.run(residents, self._saved)
            del residents
            if half is not halves.planned_backward:
                results = in_memory_of_their_own(results, [t for t in starts.values() if t is not None])
        gradients: dict[str, torch.Tensor | None] = {}
        with torch.no_grad():
            for result, tensor in zip(halves.late, results, strict=True):
                if result.kind == "gradient":
                    gradients[result.name] = tensor
                elif tensor is not None:
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
            if old is not None and not any(share_memory(new, tensor) for tensor in self._saved):
                new.copy_(old)
                old = new  # in memory in any case, so that the copy can go
            if old is not None:
                self._residents[node] = old

    def _require_unchanged(self, read: frozenset[Node]) -> None:
        for entry in self.halves.program.inputs:
            version = self._versions.get(entry.node) if entry.node in read else None
            if version is not None and self._residents[entry.node]._version != version:
                what = f"{entry.kind} {entry.name!r}" if entry.name else f"input tensor {entry.place}"
                raise ExecutionError(
                    f"{what} was written to between the forward pass and its backward pass, which reads it; step the "
                    "optimizer and reuse input tensors only after backward"
                )
        self._outputs.require_unchanged(read)

    def _forget(self) -> None:
        """Let go of every tensor, so that the process can go on after it ran out of memory."""
        self._saved, self._residents = [], {}


class PlannedStep(torch.autograd.Function):
    """Autograd's view of a `TrainingRun`: from parameters to the outputs that have gradients."""

    @staticmethod
    def forward(ctx: Any, run: TrainingRun, others: list[torch.Tensor], *parameters: torch.Tensor) -> Any:
        """The outputs that have gradients; the others are appended to ``others`` in their places, None elsewhere."""
        outputs = run.forward()
        ctx.run = run
        ctx.set_materialize_grads(False)  # None for an output that was not used
        with_gradient = {entry.place for entry in run.halves.program.inputs if entry.kind == "tangent"}
        ctx.numbers = sorted(with_gradient)
        others += [None if number in with_gradient else output for number, output in enumerate(outputs)]  # type: ignore[misc]
        return tuple(outputs[number].detach() for number in ctx.numbers)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> Any:
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


def _as_captured(tangent: torch.Tensor, node: Node) -> bool:
    """Whether the gradient of an output has the strides that it has in the captured graph."""
    return tangent.stride() == node.meta["val"].stride()
