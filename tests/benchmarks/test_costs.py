"""Predicted costs against the times that MONeT's authors measured on a P100: the error is what the benchmark says."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cost_fitting import fitted, of_measured
from costs import spread
from p100_measurements import NETWORKS, Network, extract, networks

from remat_explorer.capture.predicted_costs import SHARES
from remat_explorer.errors import RematError
from tests.thorough import thorough_but


@cache
def network(name: str) -> Network:
    (found,) = networks(names=[name])
    return found


@pytest.fixture(scope="module")
def published(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results" / "costs.json").read_text(encoding="utf-8"))["details"]


@pytest.mark.parametrize("name", thorough_but(NETWORKS, "vgg16"))
def test_the_total_of_a_network_is_within_15_percent_and_as_the_benchmark_says(name, published) -> None:
    measured = network(name).measured
    ms, predicted = sum(one.ms for one in measured), sum(of_measured(one, SHARES) for one in measured)
    assert abs(predicted / ms - 1) < 0.15
    assert predicted / ms == pytest.approx(published["networks"][name]["kernels"], rel=1e-3)
    assert ms / network(name).published_ms == pytest.approx(published["networks"][name]["matched"], rel=1e-6)
    assert ms / network(name).published_ms > 0.96


@pytest.mark.thorough
def test_each_type_of_operation_that_takes_long_is_right_in_sum(published) -> None:
    every = [one for name in NETWORKS for one in network(name).measured]
    ms = sum(one.ms for one in every)
    for kind in sorted({one.type for one in every}):
        of_kind = spread([one for one in every if one.type == kind])
        assert of_kind["kernels"] == pytest.approx(published["types"][kind]["kernels"], rel=1e-3)
        if of_kind["ms"] > 0.01 * ms:
            assert abs(of_kind["kernels"] - 1) < 0.15, kind


@pytest.mark.thorough
def test_the_shares_are_those_that_fit_the_table_best(published) -> None:
    shares, untold = fitted([one for name in NETWORKS for one in network(name).measured])
    assert untold == []
    assert {name: float(f"{share:.2g}") for name, share in dataclasses.asdict(shares).items()} == dataclasses.asdict(
        SHARES
    )
    assert published["shares"] == dataclasses.asdict(SHARES)


def test_a_folder_without_the_published_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(RematError, match=r"costs_vgg16\.json"):
        extract(tmp_path)
