"""MONeT's networks as a GPU has profiled them, read from the file of benchmarks/gpu.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_parts.record import Record
from gpu_parts.schedules import packed_graph
from monet_models import CUDA, case_of, unavailable
from monet_parts import table_one

import remat_explorer as rx
from remat_explorer.errors import RematError


@pytest.fixture
def profiled(tmp_path: Path) -> Path:
    record = Record.of(tmp_path, "monet_paper")
    record.units = {"vgg16": {"size": "batch 176", "graph": packed_graph(rx.linear(6))}, "unet_monet": {}}
    record.write()
    return record.path


def test_a_profiled_network_is_a_case_that_cannot_run_here(profiled: Path) -> None:
    case = case_of("vgg16", CUDA, profiled)
    assert case.graph.sha256 == rx.linear(6).sha256
    assert (case.size, case.executable, unavailable(CUDA, profiled)) == ("batch 176", None, "")


def test_table_1_is_solved_on_a_profiled_network(profiled: Path) -> None:
    found = table_one(case_of("vgg16", CUDA, profiled), 2.0)
    assert 0 < found["ways"]["monet"]["peak"] <= found["eager_peak"]
    assert "measured" not in found["ways"]["monet"]


def test_a_network_that_was_not_profiled_is_named(profiled: Path) -> None:
    with pytest.raises(RematError, match="holds no profiled graph of 'unet_monet'"):
        case_of("unet_monet", CUDA, profiled)
