"""MONeT's Figure 5 from a file of results: what each layer saves and costs against plain execution. Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_parts.schedules import on_graph, unpacked
from remat_explorer.figures import case_study_of
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all

SHARE = 0.6  # of eager's peak: the budget of the case study
MOST = 10  # layers of a network that are shown, those that save the most


def layer_rows(units: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The layers of each network whose schedule at 60 % is there, by bytes saved."""
    rows: list[dict[str, Any]] = []
    for name, entry in units.items():
        network = name.partition(":")[0]
        chosen = [p for p in entry.get("points", []) if p["share"] == SHARE and "schedule" in p]
        if not chosen or "graph" not in units.get(network, {}):
            continue
        graph = Graph.from_document(unpacked(units[network]["graph"]))
        schedule = on_graph(unpacked(chosen[0]["schedule"]) | {"seconds": 0.0}, graph).schedule
        assert schedule is not None
        study = case_study_of("joint", schedule, {"eager": checkpoint_all(graph)})
        layers = zip(study.layers, study.saved["eager"], study.overhead["eager"], strict=True)
        mine = [
            {"network": network, "layer": layer, "saved": int(saved), "overhead": float(overhead)}
            for layer, saved, overhead in layers
        ]
        rows += sorted(mine, key=lambda row: -row["saved"])[:MOST]
    return rows
