"""What is read out of inputs and buffers is assumed, checked in every step, and never stale."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x
from tests.runtime.step_outcomes import assert_like_plain, equal, step


class Detector(nn.Module):
    """A loss over boxes that lie in images of several sizes, as detectors compute it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, images: Any, sizes: Any, boxes: Any, labels: Any) -> torch.Tensor:
        height, width = int(sizes[:, 0].max().item()), int(sizes[:, 1].max())
        scores = self.head(images[:, :, :height, :width])
        losses = []
        for image, its_boxes, its_labels in zip(scores, boxes, labels, strict=True):
            kept = torch.where(its_labels > 0)[0]
            for (left, top, right, bottom), label in zip(its_boxes[kept].tolist(), its_labels[kept], strict=True):
                mean = image[:, top:bottom, left:right].mean((1, 2))
                losses.append(functional.cross_entropy(mean[None], label[None]))
        return torch.stack(losses).sum()


def detections(shift: int = 0, last: int = 3) -> tuple[Any, ...]:
    boxes = [torch.tensor([[0, 0, 4, 4], [2, 2, 6 + shift, 8]]), torch.tensor([[1, 1, 5, 5]])]
    labels = [torch.tensor([1, 2]), torch.tensor([last])]
    return torch.randn(2, 3, 10, 10), torch.tensor([[8, 8], [6, 7]]), boxes, labels


def picking(self: Any, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if labels.max() >= 8:
        raise ValueError("no such label")
    rows = (labels >= 0).nonzero()[:, 0]
    return functional.cross_entropy(self.l(x)[rows], labels[labels >= 0])


def assigning(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = self.l(x).clone()
    y[mask] = 0
    y[~mask] += 1
    return y


LABELS, MASK = torch.tensor([1, -1, 3, 7]), torch.tensor([True, False, True, True])
READING: dict[str, tuple[Callable[..., Any], Any]] = {
    "labels that are looked into": (picking, LABELS),
    "masked_select": (lambda s, x, m: s.l(x).masked_select(m[:, None]), MASK),
    "one_hot": (lambda s, x, t: s.l(x) * functional.one_hot(t), torch.arange(4, 8)),
    "repeat_interleave": (lambda s, x, n: s.l(x).repeat_interleave(n, 0), torch.tensor([1, 2, 0, 3])),
    "split": (lambda s, x, n: s.l(x).split(n.tolist())[0], torch.tensor([1, 3])),
    "unique": (lambda s, x, t: s.l(x)[torch.unique(t, return_inverse=True)[1]], torch.tensor([3, 1, 1])),
    "equal": (lambda s, x, t: s.l(x) if torch.equal(x, t) else -s.l(t), torch.ones(4, 8)),
    "allclose": (lambda s, x, t: s.l(x) if torch.allclose(x, x + t) else -s.l(x), torch.ones(4, 8)),
    "an assignment by mask": (assigning, MASK),
}


def trained(model: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    return rx.rematerialize(model, inputs, budget="120%", strategy="checkpoint-all", **options)


@pytest.mark.parametrize("kind", READING)
def test_a_model_that_reads_its_inputs_trains_as_in_plain_pytorch(kind):
    forward, read = READING[kind]
    planned = trained(Made(forward, l=linear()), (x(), read))
    assert_like_plain(planned, x(), read)
    if forward is picking:
        for labels in ([-1, 5, 2, 0], [4, 4, 4, -9]):  # three each, as planned, and elsewhere
            assert_like_plain(planned, x(), torch.tensor(labels))
        assert len(planned.rematerialization.plans) == 1
        with (
            pytest.warns(UserWarning, match=r"True is read out of input 1 at .*`if labels.max\(\) >= 8:`"),
            pytest.raises(CaptureError, match="no such label"),
        ):
            planned(x(), torch.tensor([1, -1, 3, 8]))


def test_where_something_else_is_read_the_error_names_the_input_the_line_and_both_values():
    planned = trained(Detector(), detections())
    assert_like_plain(planned, *detections())
    images, sizes, boxes, labels = detections()
    for inputs, words in (
        (
            (images, sizes + torch.tensor([1, 0]), boxes, labels),
            r"9 is read out of input 1 at test_assumptions\.py:\d+ `height, width = int\(.*`, .*for 8\. .*resolve=True",
        ),
        (detections(shift=1), "7 is read out of input 2 and input 3 at .*, but the plan was made for 6"),
        (detections(last=0), r"a result of shape \[0, 1\] is read out of input 3 at .* was made for .*\[1, 1\]"),
    ):
        with pytest.raises(ExecutionError, match=f"^{words}"):
            planned(*inputs)
    planned = trained(Detector(), detections(), resolve=True)
    for shift in (0, 1, 0):
        assert_like_plain(planned, *detections(shift))
    assert len(planned.rematerialization.plans) == 2


def test_a_buffer_that_is_read_is_looked_at_in_every_step():
    def once(self: Any, x: torch.Tensor) -> torch.Tensor:  # as layers do that take their scale from the first batch
        if not self.initialized:
            self.scale.copy_(x.std(0))
            self.initialized.fill_(True)
        return self.l(x) / self.scale

    model = Made(once, l=linear())
    model.register_buffer("initialized", torch.tensor(False))
    model.register_buffer("scale", torch.ones(8))
    plain, inputs = copy.deepcopy(model), (x(),)
    planned = trained(model, inputs, resolve=True)
    for _ in range(3):
        assert equal(step(planned, *inputs), step(plain, *inputs))
        assert torch.equal(planned.get_buffer("scale"), plain.get_buffer("scale"))
    assert len(planned.rematerialization.plans) == 2


def test_a_number_that_forward_itself_changes_is_refused_with_advice_that_works():
    """A queue that is filled at a place that moves on, as in contrastive learning."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        scores = self.l(x) @ self.queue.clone().T
        if self.reads:
            at = int(self.at)
            self.queue[at : at + 4] = x
        else:
            self.queue.index_copy_(0, (self.at + torch.arange(4)) % 12, x)
        self.at.add_(4).remainder_(12)
        return scores.square().mean()

    def made(reads: bool) -> nn.Module:
        model = Made(forward, l=linear(), reads=reads)
        model.register_buffer("at", torch.tensor(0))
        model.register_buffer("queue", torch.ones(12, 8))
        return model

    inputs = (x(),)
    planned = trained(made(reads=True), inputs)
    planned(*inputs).backward()
    with pytest.raises(ExecutionError, match=r"^4 is read out of the buffer 'at' .* Forward changes .*index_copy_"):
        planned(*inputs)
    plain, planned = made(reads=True), trained(made(reads=False), inputs)
    plain.load_state_dict(planned.state_dict())
    for _ in range(4):
        assert equal(step(planned, *inputs), step(plain, *inputs))
        assert torch.equal(planned.get_buffer("queue"), plain.get_buffer("queue"))


def test_a_cache_whose_size_depends_on_data_is_refused_until_a_first_pass_has_filled_it():
    def forward(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = mask.nonzero()[:, 0]
        return self.l(x)[self.kept].square().mean()

    model, inputs = Made(forward, l=linear(), kept=None), (x(), torch.tensor([1, 0, 1, 1]))
    with pytest.raises(ExecutionError, match=r"cannot be told \(.*run the model once before rematerialize"):
        trained(model, inputs)
    model(*inputs)
    assert_like_plain(trained(model, inputs), *inputs)


def test_the_other_truth_value_is_planned_once_without_being_asked_to():
    def forward(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        return (y if mask.all() else y * mask[:, None]).square().mean()

    model, masks = Made(forward, l=linear()), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0]])
    planned, steps = trained(model, (x(), masks[0])), [(x(), mask) for mask in masks]
    with pytest.warns(UserWarning, match=r"False is read out of input 1 at .*`return \(y if mask.all\(\)") as noted:
        _ = [planned(*inputs) for inputs in steps]
    assert [warning.filename for warning in noted] == [__file__]
    for inputs in steps:
        assert_like_plain(planned, *inputs)
    assert len(planned.rematerialization.plans) == 2
    given = rx.rematerialize(model, (x(), masks[0]), solution=planned.rematerialization.plans[0].solution)
    with pytest.raises(ExecutionError, match=r"(True|False) is read out of input 1 at .*resolve=True"):
        [given(*inputs) for inputs in steps]


def test_reads_of_the_capture_neither_change_buffers_nor_inputs():
    def forward(self: Any, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.l(x)[: int(self.count) + int(n.clone().add_(1))].sum()

    model = Made(forward, l=linear())
    model.register_buffer("count", torch.tensor(0))
    n = torch.tensor(1)
    program = trace(model, (x(), n))
    assert (int(model.get_buffer("count")), int(n)) == (0, 1)
    assert [read.expected for read in program.assumptions.reads] == [1, 2]


def test_a_measurement_for_inputs_that_lead_elsewhere_says_what_was_read():
    model = Made(lambda s, x, n: s.l(x) if n > 0 else s.l(x).sin().cos(), l=linear())
    graph = rx.capture(model, (x(), torch.tensor(1)))
    assert rx.measure(rx.solve(graph, budget="100%"), model, (x(), torch.tensor(2)), device="cpu", repeats=1).equal
    with pytest.raises(ExecutionError, match=r"follows from what was read out of the inputs; here False at test_assum"):
        rx.measure(rx.solve(graph, budget="100%"), model, (x(), torch.tensor(0)), device="cpu", repeats=1)


REFUSED: list[tuple[Any, torch.Tensor, str]] = [
    (lambda s, x: s.l(x) * s.l.weight.max().item(), x(), r"parameter 'l\.weight', whose content changes"),
    (lambda s, x: s.l(x)[s.l(x)[:, 0] > 0], x(), r"size of what nonzero gives depends on the parameter 'l\.\w+'"),
    (lambda s, x: s.l(x) if torch.rand([]) < 0.5 else -s.l(x), x(), "control flow is random.*layerdrop=0.0"),
    (lambda s, x: s.l(x) if x.sum() > 0 else x, x().to("meta"), "inputs or buffers that have a shape but no content"),
]


@pytest.mark.parametrize(("forward", "given", "words"), REFUSED)
def test_neither_parameters_nor_random_numbers_nor_inputs_without_content_are_assumed(forward, given, words):
    with pytest.raises(CaptureError, match=words):
        rx.capture(Made(forward, l=linear()), (given,))


def test_layers_that_are_dropped_with_probability_0_draw_what_plain_pytorch_draws():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            if not torch.rand([]) < 0.0:
                x = self.drop(self.l(x))
        return x.square().mean()

    model = Made(forward, l=linear(), drop=nn.Dropout(0.5))
    assert_like_plain(trained(model, (x(),)), x())
