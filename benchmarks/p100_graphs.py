"""Packs what the authors of MONeT published, as graphs and runs, into the file that the papers' items read.

    python benchmarks/p100_graphs.py /path/to/monet_p100

Shah et al., Memory Optimization for Deep Networks (ICLR 2021), published time and workspace of every implementation of
every operation of five networks on a 16 GB P100, and logs of their Gurobi runs of a day
(https://github.com/utsaslab/monet-schedules, commit 8ab745f; what they mean is in https://github.com/utsaslab/MONeT,
commit 98a5c7d). The folder holds them converted: graph_NETWORK_MODE.json, graph files of version 1, and results.json.
Of a budget that was solved more than once the cheapest objective and the best bound are kept. A bound above that
objective is of another problem, and left out.
"""

from __future__ import annotations

import argparse
import json
import math
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from reproduction.p100 import MODES, NETWORKS

ARCHIVE = Path(__file__).parents[1] / "reproduction" / "data" / "monet_p100_graphs.zip"
HOUR = 3600.0
BEGAN = (1980, 1, 1, 0, 0, 0)  # the same date in every archive, so that the same folder gives the same bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    results = json.loads((options.folder / "results.json").read_text(encoding="utf-8"))
    files = {"runs.json": json.dumps(runs_of(results), indent=0)}
    for network in NETWORKS:
        for mode in ("checkmate", *MODES):
            path = options.folder / f"graph_{network}_{mode}.json"
            if path.exists():
                document = json.loads(path.read_text(encoding="utf-8"))
                files[f"{network}_{mode}.json"] = json.dumps(document, separators=(",", ":"))
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, BEGAN), text, zipfile.ZIP_DEFLATED, 9)
    print(f"{len(files)} files written to {ARCHIVE}, {ARCHIVE.stat().st_size} bytes")


def runs_of(results: dict[str, Any]) -> dict[str, Any]:
    """The runs by network, mode and budget in GiB, with what plain PyTorch takes; times in milliseconds."""
    of: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
    for run in (*results["runs"], *results["solutions"]):  # of some schedules there is no log
        of[run["model"], "checkmate" if run["method"] == "checkmate" else run["mode"], run["budget_gib"]].append(run)
    best = {key: best_of(runs) for key, runs in of.items()}
    names = ("network", "mode", "budget GiB")
    runs = [dict(zip(names, key, strict=True)) | entry for key, entry in sorted(best.items())]
    plain = {
        network: {
            "GiB": table["pytorch_gb"],
            "ms": results["implied_pytorch_ms"][network]["median_ms"],
            "measured": table["monet"],
        }
        for network, table in results["readme_table"].items()
    }
    return {"source": results["source"], "pytorch": plain, "runs": runs}


def best_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The cheapest schedule, of equal ones that of the best bound, and the highest bound of the runs of one problem."""
    found = [run for run in runs if run.get("objective") is not None]
    best = min(
        found,
        key=lambda run: (run["objective"], "wall_s" not in run, -(run.get("best_bound") or 0.0)),
        default=runs[0],
    )
    most = best["objective"] + 1 if found else math.inf  # in the logs' unit, of which they are rounded to whole ones
    bounds = [bound / 100 for run in runs if (bound := run.get("best_bound")) is not None and bound <= most]
    within = [cost for seconds, cost in best.get("incumbents_seconds_objective", []) if seconds <= HOUR]
    return {
        "ms": best["objective"] / 100 if found else None,
        "bound ms": max(bounds, default=None),
        "seconds": best.get("wall_s"),
        "status": best.get("status", "no log"),
        "first seconds": best.get("first_incumbent_s"),
        "hour ms": within[-1] / 100 if within else None,
    }


if __name__ == "__main__":
    main()
