"""`policy`, as a shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remat_explorer.runtime.peers import policy_loader
from tests.project.shell import run
from tests.runtime.policies import small_transformer

MODEL = """
def make():
    import torch
    torch.manual_seed(0)
    return SmallTransformer(blocks=2), (torch.randn(16, 32, 8),)
"""


def test_a_policy_is_written_with_its_price(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(Path(small_transformer.__file__).read_text() + MODEL)
    file = tmp_path / "policy.json"
    given = [f"{source}:make", "--budget", "85%", "-o", str(file), "--no-cache", "--time-limit", "20"]
    code, out, err = run(capsys, "policy", *given)
    assert code == 0, err
    assert "above the solution" in out
    document = json.loads(file.read_text())
    assert document["regions"]
    assert document["peak"] <= document["budget"]
    assert document["cost"] >= document["lower_bound"]


def test_the_loader_is_printed_as_it_is_and_anything_else_needs_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "policy", "--loader") == (0, Path(policy_loader.__file__).read_text(), "")
    code, _, err = run(capsys, "policy", "--budget", "60%")
    assert (code, "the following arguments are required: MODEL" in err) == (64, True)
