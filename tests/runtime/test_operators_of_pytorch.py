"""Every operator that PyTorch's own tests differentiate has plain PyTorch's gradients by a plan, or is refused."""

import json
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import remat_explorer as rx
from remat_explorer.errors import RematError
from tests.runtime.step_outcomes import Left, step_of

PARTS = 60  # of the list; each is one test
SAMPLES = 2  # of each operator
# What depends on data in size or control flow, raises errors for some data, has a sparse result, or changes statistics
# that are no buffers.
REFUSED = (
    "to_sparse",
    *("_batch_norm_with_update", "_native_batch_norm_legit", "native_batch_norm", "nn.functional.batch_norm"),
    *("nn.functional.gaussian_nll_loss", "nn.functional.instance_norm", "nn.functional.ctc_loss", "cov", "linalg"),
)
LAST_BITS = ("prod", "masked.prod")  # whose gradient has two formulas: docs/limits.md


def operators() -> list[Any]:
    """PyTorch's list of operators with samples of their arguments; some set a seed, which a plan leaves to the step."""
    base = SimpleNamespace(TestCase=unittest.TestCase)  # all that the list's module wants of a package beside torch
    sys.modules.setdefault("expecttest", base)  # type: ignore[arg-type]
    from torch.testing._internal import common_methods_invocations as listed

    listed.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # type: ignore[attr-defined]
    return [op for op in listed.op_db if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")]


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


class Place(int):
    """Stands for the parameter of this number."""


class Applied(nn.Module):
    """An operator, of whose sample the tensors with gradients are parameters; returns a loss."""

    def __init__(self, op: Callable[..., Any], sample: Any) -> None:
        super().__init__()
        self.parts = nn.ParameterList()
        self.op, self.post = op, sample.output_process_fn_grad
        self.given = tree_map(self._parameter, (sample.input, sample.args, sample.kwargs))

    def _parameter(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.requires_grad:
            return leaf
        self.parts.append(nn.Parameter(leaf.detach().clone()))
        return Place(len(self.parts) - 1)

    def forward(self) -> torch.Tensor:
        made = tree_map(lambda leaf: self.parts[leaf] * 1 if isinstance(leaf, Place) else leaf, self.given)
        first, args, kwargs = made
        outputs = tree_leaves(self.post(self.op(first, *args, **kwargs)))
        outputs = [out for out in outputs if isinstance(out, torch.Tensor) and out.requires_grad]
        losses = [(out.abs() if out.is_complex() else out).tanh().square().mean() for out in outputs]
        return torch.stack(losses).sum()


def same(mine: torch.Tensor | None, theirs: torch.Tensor | None, rounding: float = 0.0) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    return torch.allclose(mine, theirs, rtol=rounding, atol=1e-3 * rounding, equal_nan=True)


def samples(op: Any) -> Iterator[tuple[Applied, Left]]:
    """A few samples as a model, with what plain PyTorch gives; not those without gradients, or at random."""
    found = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
    for sample in found[:: max(1, len(found) // SAMPLES)][:SAMPLES]:
        model = Applied(op, sample)
        if not all(part.numel() for part in model.parts):
            continue
        try:
            expected, again = step_of(model), step_of(model)
            repeatable = all(map(same, expected, again))
        except (RuntimeError, NotImplementedError):  # no gradients, or sparse ones
            continue
        if repeatable:
            yield model, expected


def judged(op: Any) -> list[str]:
    """For each sample what is wrong: a plan gives something else, or nothing for what could be planned. Else ""."""
    found = []
    for model, expected in samples(op):
        try:
            made = rx.rematerialize(model, (), budget="smallest", time_limit=0.3)
        except RematError as error:
            found.append("" if name_of(op).startswith(REFUSED) else f"{name_of(op)}: {error}")
            continue
        rounding = 1e-5 if name_of(op) in LAST_BITS else 0.0
        pairs = zip(step_of(made), expected, strict=True)
        found.append("" if all(same(*pair, rounding) for pair in pairs) else f"{name_of(op)}: differs")
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_the_operators_of_pytorchs_own_tests_have_its_gradients_or_are_refused(part: int) -> None:
    """In a process of its own: PyTorch's module forbids in its process that flags of back ends are set."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, str(part)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said) >= 3
    assert [wrong for wrong in said if wrong] == []


if __name__ == "__main__":
    part = slice(int(sys.argv[1]), None, PARTS)
    print(json.dumps([wrong for op in operators()[part] for wrong in judged(op)]))
