"""One training step by a plan, as a function that autograd can differentiate."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from remat_explorer.capture import Registers, Result, as_part_of, no_autocast
from remat_explorer.errors import ExecutionError
from remat_explorer.offload import TransferPlan
from remat_explorer.runtime.copies import Copies
from remat_explorer.runtime.forward_backward import BackwardGenerator, ForwardBackward
from remat_explorer.runtime.oom_errors import explain_oom
from remat_explorer.runtime.output_guard import OutputGuard
from remat_explorer.runtime.random_state import generator_state, set_generator_state
from remat_explorer.runtime.retain_graph import graph_is_retained

EXCHANGED = 1 << 20  # bytes of a buffer that are exchanged at a time, unless a row has more
_RAN = (
    "this backward pass ran already, and what it needs is freed; call the model again. A plan runs once, unless "
    "rematerialize(..., retain_graph=True) has planned for backward(retain_graph=True)"
)


class TrainingRun:
    """One forward pass and the backward pass that belongs to it.

    Parameters and buffers are read from ``model``; new buffer contents are written when the forward pass ends. Where a
    pass of a plan that sends values fails, they are as they were before, and no gradient has left.
    """

    def __init__(
        self, code: ForwardBackward, model: nn.Module, tensors: tuple[torch.Tensor, ...], handovers: int
    ) -> None:
        self.code, self.model, self.handovers = code, model, code.handovers[:handovers]
        self._residents: Registers = code.program.bind(model, tensors, tangents=False)
        self._sharded = dict(model.named_parameters()) if code.scatters else {}
        self._saved: list[Any] = []
        self._over = False
        self._running: BackwardGenerator | None = None
        self._gradients: list[torch.Tensor | None] = []
        self._parameters: dict[str, tuple[torch.Tensor, int]] = {}  # that the backward pass reads, with their versions
        self._versions: dict[Node, int] = {}
        self._copies: Copies | None = None
        self._before: list[tuple[torch.Tensor, torch.Tensor, int]] = []  # buffers, what they held, versions since

    @property
    def is_waiting(self) -> bool:
        """Whether its backward pass is still to come."""
        return not self._over

    def forward(self) -> list[torch.Tensor]:
        """Run the forward pass; every output. An ExecutionError names the statement where memory ran out."""
        code = self.code
        start = None
        if isinstance(code.plan, TransferPlan):
            start = generator_state(code.device)
            self._copies = code.tier.open(code.plan, code.device)
        with no_autocast(), torch.no_grad(), explain_oom(code.plan, self._forget), self._undone_on_error(start):
            results, self._saved = code.forward(self._residents, self._copies)
            self._write_buffers(results)
        named = zip(code.forward_results, results, strict=True)
        outputs = [tensor for result, tensor in named if result.kind == "output"]
        self._versions = {
            node: self._residents[node]._version for node in code.backward_residents if node in self._residents
        }
        self._residents = {node: self._residents[node] for node in self._versions}
        # the person may write to outputs, which must not go unnoticed
        self._saved.reverse()
        self._outputs = OutputGuard(outputs, code.output_reads, code.saved.nodes, self._saved)
        self._saved.reverse()  # the last is popped first
        return outputs

    def backward(self, tangents: dict[int, torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Begin the backward pass; what `advance` gives for the first handover.

        ``tangents`` are gradients by the number of the output, None of one that was not used. An ExecutionError if it
        ran already, if something that it needs was written to since the forward pass, or if memory runs out.
        """
        code = self.code
        if self._over:
            raise ExecutionError(_RAN)
        starts = {
            entry.node: tangents[entry.place]
            for entry in code.program.inputs
            if entry.kind == "tangent" and entry.node in code.backward_residents
        }
        missing = None
        if not all(tangent is not None and _as_captured(tangent, node) for node, tangent in starts.items()):
            missing = frozenset(node for node, tangent in starts.items() if tangent is None)
        again = code.retains and graph_is_retained()
        backward = code.backward(missing, again)
        self._require_unchanged(backward.reads)
        residents, saved = {**self._residents, **starts}, self._saved[:]
        if not again:
            self._over = True
            del self._outputs
            self._forget()
        self._parameters = {
            entry.name: (residents[entry.node], residents[entry.node]._version)
            for entry in code.program.inputs
            if entry.kind == "parameter" and entry.node in backward.reads
        }
        self._gradients = []
        self._running = backward.run(residents, saved, self._gradients, self._copies)
        del residents, saved, starts  # they would hold what the backward pass frees
        return self.advance(0)

    def advance(self, handover: int) -> list[torch.Tensor | None]:
        """Run the backward pass up to the next handover; the gradients of that, None of one that none leads to.

        An ExecutionError if the backward pass has failed before, one of its parameters was written to, or memory runs
        out.
        """
        running, self._running = self._running, None
        if running is None:
            raise ExecutionError(_RAN)
        for result in self.handovers[handover]:
            parameter, version = self._parameters.pop(result.name, (None, 0))
            if parameter is not None and parameter._version != version:
                raise ExecutionError(
                    f"parameter {result.name!r} was written to in the backward pass, before its gradient was there; "
                    "a hook may write to a parameter when it gets the gradient of that parameter"
                )
        with no_autocast(), torch.no_grad(), explain_oom(self.code.plan, self._forget), self._undone_on_error():
            next(running)
            gradients = self._handed_over(handover)
            if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
                self._require_numbers(handover, gradients)
            if handover + 1 < len(self.handovers):
                self._running = running
                return gradients
            self._finish(running)
        return gradients

    def _require_numbers(self, handover: int, gradients: list[torch.Tensor | None]) -> None:
        """Refuse NaN, as anomaly detection does, to which a whole plan is one function without operators."""
        for result, gradient in zip(self.handovers[handover], gradients, strict=True):
            if gradient is not None and gradient.isnan().any():
                raise ExecutionError(
                    f"the gradient of {result.name!r} has NaN, and anomaly detection sees no operator of a plan; run "
                    "this step with the model that was given to rematerialize, which has the same parameters, within "
                    "torch.autograd.detect_anomaly(): it names the operator and its line"
                )

    def _handed_over(self, handover: int) -> list[torch.Tensor | None]:
        """The gradients as autograd knows them: of a sharded parameter, as a part of one."""
        gradients = self._gradients[:]
        self._gradients.clear()
        if self._sharded:
            for place, result in enumerate(self.handovers[handover]):
                gradient, owner = gradients[place], self._sharded.get(result.name)
                if gradient is not None and owner is not None:
                    gradients[place] = as_part_of(owner, gradient)
        return gradients

    def _finish(self, running: BackwardGenerator) -> None:
        """Write the buffers that the backward pass computes; what else is left serves gradients that nobody wants."""
        buffers = [result for result in self.code.backward_results if result.kind == "buffer"]
        try:
            while buffers:
                next(running)
        except StopIteration as end:
            for result, content in zip(buffers, end.value, strict=True):
                self.model.get_buffer(result.name).copy_(content)
        running.close()
        if self._copies is not None:
            self._copies.close()
            self._before.clear()

    @contextlib.contextmanager
    def _undone_on_error(self, start: Any = None) -> Iterator[None]:
        """End the copies where a pass fails, put back its buffers, and the generator to its state ``start``."""
        try:
            yield
        except BaseException:
            if self._copies is not None:
                self._over = True
                self._copies.close()
                self._forget()
                for buffer, old, version in self._before:
                    if buffer._version == version:  # no other pass has written to it since
                        buffer.copy_(old)
                if start is not None:
                    set_generator_state(start, self.code.device)
            raise

    def _write_buffers(self, results: list[torch.Tensor]) -> None:
        """Write the new contents; old ones that are needed take the place of the new, which stays: as values of the
        plan, but for counts of steps, which are 8 B each.
        """
        nodes = {entry.name: entry.node for entry in self.code.program.inputs if entry.kind == "buffer"}
        held: Counter[int | None] | None = None
        for result, new in zip(self.code.forward_results, results, strict=True):
            if result.kind != "buffer":
                continue
            buffer, node = self.model.get_buffer(result.name), nodes[result.name]
            if self._copies is None and node not in self.code.backward_residents:
                buffer.copy_(new)
                continue
            if held is None:
                held = Counter(map(_memory_of, (*results, *self._saved, *self._residents.values())))
            if not new.is_contiguous() or held[_memory_of(new)] > 1:
                old = buffer.clone()
                buffer.copy_(new)
            else:  # it is in memory in any case
                _exchange(buffer, new)
                old = new
            if self._copies is not None:
                self._before.append((buffer, old, buffer._version))
            if node in self.code.backward_residents:
                self._residents[node] = old

    def _require_unchanged(self, read: frozenset[Node]) -> None:
        for entry in self.code.program.inputs:
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
    """Autograd's view of a `TrainingRun`: from parameters and inputs to the outputs that have gradients.

    It gives the gradients of the first handover; those of the others come from a chain of `Handover`.
    """

    @staticmethod
    def forward(
        ctx: Any, run: TrainingRun, others: list[torch.Tensor], chain: torch.Tensor | None, *parameters: torch.Tensor
    ) -> Any:
        """The outputs that have gradients; the others are appended to ``others`` in their places, None elsewhere."""
        outputs = run.forward()
        ctx.run, ctx.chained = run, chain is not None
        ctx.set_materialize_grads(False)  # None for an output that was not used
        with_gradient = {entry.place for entry in run.code.program.inputs if entry.kind == "tangent"}
        ctx.numbers = sorted(with_gradient)
        others += [None if number in with_gradient else output for number, output in enumerate(outputs)]  # type: ignore[misc]
        return tuple(outputs[number].detach() for number in ctx.numbers)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> Any:
        """The gradients of the first handover, in its order; an ExecutionError if gradients shall have gradients."""
        if torch.is_grad_enabled():
            raise ExecutionError(
                "create_graph=True asks for gradients of gradients, which a plan does not compute; call the model that "
                "was given to rematerialize, which has the same parameters, for this pass"
            )
        if any(tangent is not None and _is_batched(tangent) for tangent in tangents):
            raise ExecutionError(
                "is_grads_batched=True asks for several backward passes at once, but a plan does one; call backward "
                "for each, or the model that was given to rematerialize, which has the same parameters, for this pass"
            )
        gradients = ctx.run.backward(dict(zip(ctx.numbers, tangents, strict=True)))
        return None, None, _link(ctx.run) if ctx.chained else None, *gradients


class Handover(torch.autograd.Function):
    """A part of the backward pass: autograd's engine comes here when it has used the gradients of the part before.

    The engine runs the node that was made last first, but accumulates gradients into parameters before all others. So
    hooks on parameters run, and gradients are sent to other processes, between two handovers.
    """

    @staticmethod
    def forward(
        ctx: Any, run: TrainingRun, number: int, chain: torch.Tensor | None, *parameters: torch.Tensor
    ) -> torch.Tensor:
        """A link without content, which ties the handover to the one before."""
        ctx.run, ctx.number, ctx.chained = run, number, chain is not None
        return _link(run)

    @staticmethod
    def backward(ctx: Any, link: torch.Tensor) -> Any:  # type: ignore[override]
        """The gradients of the handover, in its order."""
        return None, None, link if ctx.chained else None, *ctx.run.advance(ctx.number)


def train(
    code: ForwardBackward,
    model: nn.Module,
    tensors: tuple[torch.Tensor, ...],
    inputs: Sequence[torch.Tensor] | None = None,
    note: Callable[[TrainingRun], object] = lambda run: None,
) -> list[torch.Tensor]:
    """Every output of a forward pass, tied for autograd to the parameters of ``model``, and to inputs.

    ``inputs`` are ``tensors`` as autograd knows them; ``note`` is called with the run before it begins.
    """
    given = tensors if inputs is None else inputs

    def owner(result: Result) -> torch.Tensor:
        assert result.of is not None
        return model.get_parameter(result.name) if result.of.kind == "parameter" else given[result.of.place]

    tied = [[owner(result) for result in handover] for handover in code.handovers]
    while tied and not any(tensor.requires_grad for tensor in tied[-1]):
        tied.pop()
    run = TrainingRun(code, model, tensors, len(tied))
    note(run)
    chain: Any = None
    for number in range(len(tied) - 1, 0, -1):
        chain = Handover.apply(run, number, chain, *tied[number])
    others: list[Any] = []
    outputs = list(PlannedStep.apply(run, others, chain, *(tied[0] if tied else ())))
    return [outputs.pop(0) if other is None else other for other in others]


def _is_batched(tangent: torch.Tensor) -> bool:
    return "Batched" in str(torch._C._dispatch_keys(tangent))  # of both kinds of vmap


def _memory_of(entry: Any) -> int | None:
    """Where the storage of a tensor begins."""
    return entry.untyped_storage().data_ptr() if isinstance(entry, torch.Tensor) else None


def _exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Exchange the contents of two tensors of one shape, a part at a time."""
    rows = max(1, EXCHANGED * len(one) // max(1, one.nbytes)) if one.dim() else 1
    parts = zip(one.split(rows), other.split(rows), strict=True) if one.dim() else [(one, other)]
    for mine, yours in parts:
        kept = mine.clone()
        mine.copy_(yours)
        yours.copy_(kept)


def _link(run: TrainingRun) -> torch.Tensor:
    return torch.empty(0, dtype=torch.float32, device=run.code.device)


def _as_captured(tangent: torch.Tensor, node: Node) -> bool:
    """Whether the gradient of an output has the strides that it has in the captured graph."""
    return tangent.stride() == node.meta["val"].stride()
