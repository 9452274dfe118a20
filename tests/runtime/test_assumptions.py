"""What is read out of inputs and buffers is assumed, checked in every step, and never stale."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.training_step import detached_inputs
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made, linear, x


class Detector(nn.Module):
    """A loss over boxes that lie in images of several sizes, as detectors compute it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 5, 1)

    def forward(self, images: Any, sizes: Any, boxes: Any, labels: Any) -> torch.Tensor:
        height, width = int(sizes[:, 0].max().item()), int(sizes[:, 1].max())
        scores = self.head(self.features(images[:, :, :height, :width]).relu())
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
    return functional.cross_entropy(self.layer(x)[rows], labels[labels >= 0])


def once(self: Any, x: torch.Tensor) -> torch.Tensor:
    """As layers do that take their scale from the first batch."""
    if not self.initialized:
        self.scale.copy_(x.std(0))
        self.initialized.fill_(True)
    return (self.layer(x) / self.scale).square().mean()


READING: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "detector": (Detector, detections()),
    "labels that are looked into": (lambda: Made(picking, layer=linear()), (x(), torch.tensor([1, -1, 3, 7]))),
    "masked_select": (
        lambda: Made(lambda s, x, m: s.l(x).masked_select(m[:, None]).sum(), l=linear()),
        (x(), x(4) > 0),
    ),
    "one_hot": (
        lambda: Made(lambda s, x, t: (s.l(x) * functional.one_hot(t)).sum(), l=linear()),
        (x(), torch.arange(4, 8)),
    ),
    "repeat_interleave": (
        lambda: Made(lambda s, x, n: s.l(x).repeat_interleave(n, 0).square().sum(), l=linear()),
        (x(), torch.tensor([1, 2, 0, 3])),
    ),
    "split": (
        lambda: Made(lambda s, x, n: sum(p.square().mean() for p in s.l(x).split(n.tolist())), l=linear()),
        (x(), torch.tensor([1, 3])),
    ),
    "unique": (
        lambda: Made(lambda s, x, t: s.l(x)[torch.unique(t, return_inverse=True)[1]].square().sum(), l=linear()),
        (x(), torch.tensor([3, 1, 1])),
    ),
    "equal": (
        lambda: Made(lambda s, x, t: (s.l(x) if torch.equal(x, t) else s.l(t)).square().sum(), l=linear()),
        (torch.ones(4, 8), torch.ones(4, 8)),
    ),
    "allclose": (
        lambda: Made(lambda s, x: (s.l(x) if torch.allclose(x, x + 1) else -s.l(x)).square().sum(), l=linear()),
        (x(),),
    ),
    "an assignment by mask": (lambda: Made(lambda s, x, m: _assigned(s.l(x), m), l=linear()), (x(), x(4) > 0)),
}


def _assigned(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[mask] = 0
    y[~mask] += 1
    return y.square().sum()


def step(model: Any, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """Loss and gradients of one step."""
    torch.manual_seed(1)
    loss = model(*inputs)
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def trained(model: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    return rx.rematerialize(model, inputs, **({"budget": "120%", "time_limit": 1} | options))


@pytest.mark.parametrize("kind", READING)
def test_a_model_that_reads_its_inputs_trains_as_in_plain_pytorch(kind):
    make, inputs = READING[kind]
    torch.manual_seed(0)
    model = make()
    assert equal(step(trained(model, inputs), inputs), step(copy.deepcopy(model), inputs))


def test_picked_entries_are_found_anew_in_every_step():
    model = Made(picking, layer=linear())
    planned = trained(model, (x(), torch.tensor([1, -1, 3, 7])))
    for labels in ([-1, 5, 2, 0], [4, 4, 4, -9]):  # three each, as planned, and elsewhere
        inputs = (x(), torch.tensor(labels))
        assert equal(step(planned, inputs), step(model, inputs))
    assert len(planned.rematerialization.plans) == 1


def test_where_something_else_is_read_the_error_names_the_input_the_line_and_both_values():
    planned = trained(Detector(), detections())
    images, sizes, boxes, labels = detections()
    with pytest.raises(
        ExecutionError,
        match=r"^9 is read out of input 1 at test_assumptions\.py:\d+ `height, width = int\(.*`, but the plan was made "
        r"for 8\. .*resolve=True",
    ):
        planned(images, sizes + torch.tensor([1, 0]), boxes, labels)
    with pytest.raises(
        ExecutionError, match=r"^7 is read out of input 2 and input 3 at .*, but the plan was made for 6"
    ):
        planned(*detections(shift=1))
    with pytest.raises(
        ExecutionError, match=r"^a result of shape \[0, 1\] is read out of input 3 at .* was made for .*\[1, 1\]"
    ):
        planned(*detections(last=0))


def test_with_resolve_it_is_planned_anew_and_both_plans_are_kept():
    torch.manual_seed(0)
    model = Detector()
    planned = trained(model, detections(), resolve=True)
    for inputs in (detections(), detections(shift=1), detections(), detections(shift=1)):
        assert equal(step(planned, inputs), step(model, inputs))
    assert len(planned.rematerialization.plans) == 2


def test_a_buffer_that_is_read_is_looked_at_in_every_step():
    model = Made(once, layer=linear())
    model.register_buffer("initialized", torch.tensor(False))
    model.register_buffer("scale", torch.ones(8))
    plain, inputs = copy.deepcopy(model), (x(),)
    planned = trained(model, inputs, resolve=True)
    for _ in range(3):
        assert equal(step(planned, inputs), step(plain, inputs))
        assert torch.equal(planned.get_buffer("scale"), plain.get_buffer("scale"))
    assert len(planned.rematerialization.plans) == 2


def test_a_number_that_forward_itself_changes_is_refused_with_advice_that_works():
    """A queue that is filled at a place that moves on, as in contrastive learning."""

    def read(self: Any, x: torch.Tensor) -> torch.Tensor:
        at, scores = int(self.at), self.l(x) @ self.queue.clone().T
        self.queue[at : at + 4] = x
        self.at.fill_((at + 4) % 12)
        return scores.square().mean()

    def computed(self: Any, x: torch.Tensor) -> torch.Tensor:
        scores = self.l(x) @ self.queue.clone().T
        self.queue.index_copy_(0, (self.at + torch.arange(4)) % 12, x)
        self.at.add_(4).remainder_(12)
        return scores.square().mean()

    def made(forward: Any) -> nn.Module:
        model = Made(forward, l=linear())
        model.register_buffer("at", torch.tensor(0))
        model.register_buffer("queue", torch.ones(12, 8))
        return model

    inputs = (x(),)
    planned = trained(made(read), inputs)
    planned(*inputs).backward()
    with pytest.raises(ExecutionError, match=r"^4 is read out of the buffer 'at' .* Forward changes .*index_copy_"):
        planned(*inputs)
    plain, planned = made(read), trained(made(computed), inputs)
    plain.load_state_dict(planned.state_dict())
    for _ in range(4):
        assert equal(step(planned, inputs), step(plain, inputs))
        assert torch.equal(planned.get_buffer("queue"), plain.get_buffer("queue"))


def test_a_number_that_a_layer_of_pytorch_reads_is_said_with_its_line():
    model = nn.Sequential(linear(), nn.BatchNorm1d(8, momentum=None))
    planned = rx.rematerialize(model, (x(),), budget="100%", loss=torch.sum)
    planned(x()).backward()
    with pytest.raises(ExecutionError, match=r"^2 is read .*'1\.num_batches_tracked' at batchnorm\.py:.*as mom"):
        planned(x())


def test_a_cache_whose_size_depends_on_data_is_refused_until_a_first_pass_has_filled_it():
    def forward(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = mask.nonzero()[:, 0]
        return self.l(x)[self.kept].square().mean()

    model, inputs = Made(forward, l=linear()), (x(), torch.tensor([1, 0, 1, 1]))
    vars(model)["kept"] = None
    with pytest.raises(ExecutionError, match=r"cannot be told \(.*run the model once before rematerialize"):
        trained(model, inputs)
    vars(model)["kept"] = None
    model(*inputs)
    plain = copy.deepcopy(model)
    assert equal(step(trained(model, inputs), inputs), step(plain, inputs))


def test_the_other_truth_value_is_planned_once_without_being_asked_to():
    def forward(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        return (y if mask.all() else y * mask[:, None]).square().mean()

    model, masks = Made(forward, l=linear()), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 0]])
    planned, steps = trained(model, (x(), masks[0])), [(x(), mask) for mask in masks]
    with pytest.warns(UserWarning, match=r"False is read out of input 1 at .*`return \(y if mask.all\(\)") as noted:
        found = [step(planned, inputs) for inputs in steps]
    assert all(equal(*pair) for pair in zip(found, (step(model, inputs) for inputs in steps), strict=True))
    assert [warning.filename for warning in noted] == [__file__]
    assert len(planned.rematerialization.plans) == 2
    given = rx.rematerialize(model, (x(), masks[0]), solution=planned.rematerialization.plans[0].solution)
    with pytest.raises(ExecutionError, match=r"(True|False) is read out of input 1 at .*resolve=True"):
        [given(*inputs) for inputs in steps]


def test_labels_that_plain_pytorch_refuses_are_refused():
    planned = trained(Made(picking, layer=linear()), (x(), torch.tensor([1, -1, 3, 7])))
    with (
        pytest.warns(UserWarning, match=r"True is read out of input 1 at .*`if labels.max\(\) >= 8:`.*made for False"),
        pytest.raises(CaptureError, match="no such label"),
    ):
        planned(x(), torch.tensor([1, -1, 3, 8]))


def test_what_was_read_is_checked_without_what_it_does_not_need():
    big = x(64, 64)
    model = Made(lambda s, x, n, b: s.l(x)[: int(n[0])].sum() + (b @ b).sum(), l=linear())
    program = trace(model, (x(), torch.tensor([2, 3]), big))
    (read,) = program.assumptions.reads
    assert [given.place for given in read.sources] == [1]
    assert not program.assumptions.broken(model, detached_inputs((x(), torch.tensor([2, 9]), big)))


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


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda s, x: s.l(x) * s.l.weight.max().item(), r"depends on the parameter 'l\.weight', whose content changes"),
        (lambda s, x: s.l(x)[s.l(x)[:, 0] > 0], r"size of what nonzero gives depends on the parameter 'l\.\w+'"),
        (lambda s, x: s.l(x) if torch.rand([]) < 0.5 else -s.l(x), "control flow is random.*layerdrop=0.0"),
    ],
)
def test_neither_parameters_nor_random_numbers_are_assumed(forward, words):
    with pytest.raises(CaptureError, match=words):
        rx.capture(Made(forward, l=linear()), (x(),))


def test_inputs_without_content_are_not_read():
    with pytest.raises(CaptureError, match="depends on inputs or buffers that have a shape but no content"):
        rx.capture(Made(lambda s, x: s.l(x) if x.sum() > 0 else x, l=linear()), (torch.ones(4, 8, device="meta"),))


def test_layers_that_are_dropped_with_probability_0_draw_what_plain_pytorch_draws():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            if not torch.rand([]) < 0.0:
                x = self.drop(self.l(x))
        return x.square().mean()

    model = Made(forward, l=linear(), drop=nn.Dropout(0.5))
    inputs = (x(),)
    planned = trained(model, inputs)
    assert equal(step(planned, inputs), step(model, inputs))
