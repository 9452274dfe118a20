"""PyTorch's record of CUDA allocations, with a stand-in that only notes what is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from remat_explorer.runtime.measure import record_memory_snapshot
from tests.capture.cuda_stand_in import GPU


@pytest.mark.parametrize("enabled", [False, True], ids=["nobody records", "somebody records"])
def test_a_recording_is_begun_and_ended_only_where_there_is_none(
    enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: enabled, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **given: asked.append(given))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_text("snapshot"))
    with record_memory_snapshot(GPU, tmp_path / "snapshot.pickle"):
        assert len(asked) == (not enabled)
    assert (tmp_path / "snapshot.pickle").read_text() == "snapshot"
    assert asked[1:] == ([] if enabled else [{"enabled": None}])
