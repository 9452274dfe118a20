"""`remat-explorer solve --offload`: what it prints, writes and leaves with."""

import json
from pathlib import Path

import pytest

import remat_explorer as rx
from remat_explorer.errors import QuantityError
from remat_explorer.offload import check_transfers
from tests.project.shell import run


@pytest.fixture
def chain(tmp_path: Path) -> str:
    return str(rx.linear(4).save(tmp_path / "chain.json") or tmp_path / "chain.json")


def test_a_plan_is_printed_in_words_and_its_file_is_read_again(
    capsys: pytest.CaptureFixture[str], chain: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "plan.json")
    code, out, err = run(capsys, "solve", chain, "--budget", "4", "--offload", "1 B/s", "-o", place)
    assert (code, err) == (0, "")
    solution = rx.TransferSolution.load(place, rx.linear(4))
    assert solution.plan is not None
    assert check_transfers(solution.plan, 4, 9.0, 9.0).peak <= 4
    first, makespan, size, how, written = out.splitlines()
    assert first.startswith("strategy offload: proven optimal, predicted overhead +0.0 % and peak 4 B of 4 B, sends ")
    assert makespan == "makespan 9, lower bound 9, of which 0 waits for copies"
    assert size == f"peak 4 B, sent {solution.plan.sent_bytes} B, on the host at most {solution.host_peak} B"
    assert how == "times are predicted, for 1 B/s out and back; nothing was measured"
    assert written == f"written to {place}"


def test_one_object_has_what_the_file_has_but_for_the_statements(
    capsys: pytest.CaptureFixture[str], chain: str
) -> None:
    words = ("--strategy", "offload-only", "--offload", "2 B/s out, 1 B/s back, 0 s a copy", "--host-memory", "2 B")
    code, out, _ = run(capsys, "solve", chain, "--budget", "4", *words, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["transfers"] == {"out": 2.0, "back": 1.0, "latency": 0.0, "host_bytes": 2, "duplex": True}
    assert (found["cost"], found["computing"], found["strategy"]) == (9.0, 9.0, "offload-only")
    assert 0 < found["host_peak"] <= 2
    assert "plan" not in found


def test_too_small_a_budget_is_explained_and_leaves_with_2(capsys: pytest.CaptureFixture[str], chain: str) -> None:
    code, out, _ = run(capsys, "solve", chain, "--budget", "2", "--offload", "1 B/s", "--strategy", "offload-only")
    assert code == 2
    assert "2 B is too little for any plan: the operation 'v5' alone needs 3 B" in out
    *_, last = out.splitlines()
    assert last.startswith("to go on, type: remat-explorer solve ")
    assert last.endswith("--offload '1 B/s' --budget smallest --strategy offload")


def test_what_describes_transfers_names_them() -> None:
    for given in ("25 GB/s", "pcie4", "nvme", "1.5 MB/s out, 0.5 B/s back, 20 ms a copy, one way at a time"):
        transfers = rx.Transfers.of(given)
        again = rx.Transfers.of(transfers.describe())
        assert again.out == pytest.approx(transfers.out, rel=1e-3)
        assert again.back == pytest.approx(transfers.back, rel=1e-3)
        assert (again.latency, again.duplex) == (transfers.latency, transfers.duplex)
    for wrong in ("", "25", "GB/s", "25 GB/s sideways", "25 GB/s, fast", "1e99 GB/s", "10 us a copy"):
        with pytest.raises(QuantityError):
            rx.Transfers.of(wrong)
