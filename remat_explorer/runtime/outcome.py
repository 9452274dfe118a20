"""What one training step gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from remat_explorer.capture.captured_program import Result


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """Results of a training step: the outputs (the loss alone, where there is one), gradients, new buffer contents.

    Attributes:
        outputs: in the order of the program's results.
        gradients: for each parameter that gets one, by its name in the model, and for each input as "input tensor 0".
        buffers: the buffers that the step writes, by name.
    """

    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]

    @staticmethod
    def of(results: Sequence[Result], tensors: Sequence[torch.Tensor]) -> StepOutcome:
        """The tensors of a program's results, by what each one is."""
        by_kind: dict[str, dict[str, torch.Tensor]] = {"output": {}, "gradient": {}, "buffer": {}}
        for result, tensor in zip(results, tensors, strict=True):
            by_kind[result.kind][result.name] = tensor
        return StepOutcome(tuple(by_kind["output"].values()), by_kind["gradient"], by_kind["buffer"])

    def copied(self) -> StepOutcome:
        """The same in tensors of its own, on the CPU, which nothing that runs later changes."""

        def copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

        outputs = tuple(output.detach().to("cpu", copy=True) for output in self.outputs)
        return StepOutcome(outputs, copies(self.gradients), copies(self.buffers))

    def write_to(self, model: nn.Module) -> None:
        """Add the gradients to the parameters' and put the new contents into the buffers, as eager training does."""
        with torch.no_grad():
            for name, gradient in self.gradients.items():
                parameter = model.get_parameter(name)
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
            for name, content in self.buffers.items():
                model.get_buffer(name).copy_(content)
