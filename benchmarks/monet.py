"""MONeT's evaluation: table 1 (memory at 10 % overhead), figures 3 and 6, beside the numbers that it published.

The part "figure4" is how soon solvers come close to the best schedule, "speed" how soon the joint problem is solved at
full size.

    python benchmarks/monet.py --minutes 10
    python benchmarks/monet.py --models vgg16 --settings roofline --parts table1 figure6
    python benchmarks/monet.py --settings cuda --profiled results/monet_paper.json

Settings: "roofline" is MONeT's size with predicted costs, of which the weights alone are allocated; "cpu" are small
batches, profiled, with schedules that are executed and measured; "cuda" is MONeT's size on a GPU, measured, where there
is one, or solved here as a GPU has profiled it (--profiled). A network takes at most the given minutes in each setting.
Every part is written when it is done, and not done again by the next run; --again does. Limits are of wall time, so the
load of the machine stands beside each part. MONeT measured on a P100, with other costs and with workspace: not like for
like.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from monet_models import NETWORKS, SETTINGS, WORKSPACE, Case, case_of, unavailable
from monet_parts import PARTS
from report import RESULTS, publish, write

from remat_explorer.errors import RematError
from remat_explorer.solvers.search.compilation import warm_up

COLUMNS = (
    "network",
    "setting",
    "eager GB",
    "checkmate-d",
    "checkmate-o",
    "exact",
    "monet",
    "proven",
    "target",
    "MONeT",
)
SOURCE = "Shah et al., ICLR 2021, table 1: memory at 10 % overhead relative to PyTorch, on a P100"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=10.0, help="of a network in a setting, at most (default: 10)")
    parser.add_argument("--profiled", type=Path, metavar="FILE", help="of benchmarks/gpu.py: the graphs of cuda")
    parser.add_argument("--again", action="store_true", help="do parts that are done")
    options = parser.parse_args()
    warm_up()
    known = read()
    for setting in options.settings:
        if word := unavailable(setting, options.profiled):
            print(f"{setting} is skipped: {word}", flush=True)
            continue
        for name in options.models:
            entry = known.setdefault(f"{setting}/{name}", {})
            missing = [part for part in options.parts if options.again or part not in entry]
            run(name, setting, missing, 60 * options.minutes, entry, known, options.profiled)
    print(*(line for key, entry in known.items() for line in lines(key, entry)), sep="\n")
    publish("monet", COLUMNS, rows(known), known, **facts())


def run(
    name: str,
    setting: str,
    parts: list[str],
    seconds: float,
    entry: dict[str, Any],
    known: Any,
    profiled: Path | None = None,
) -> None:
    """The parts of one network in one setting, each written when it is done."""
    if not parts:
        return
    started = time.monotonic()
    try:
        case: Case = case_of(name, setting, profiled)
    except RematError as error:
        print(f"{setting}/{name} is skipped: {error}", flush=True)
        return
    made = time.monotonic() - started
    entry |= {"size": case.size, "operations": case.graph.n, "capture_seconds": made}
    for part in parts:
        function, share = PARTS[part]
        begun = time.monotonic()
        entry[part] = function(case, share * max(seconds - made, seconds / 2))
        entry[part] |= {"wall_seconds": time.monotonic() - begun, "minutes": seconds / 60, "load": os.getloadavg()[1]}
        write("monet", COLUMNS, rows(known), known, **facts())
        print(f"{setting}/{name}/{part}: {entry[part]['wall_seconds']:.0f} s", flush=True)


def read() -> dict[str, Any]:
    """What an earlier run has written."""
    path = RESULTS / "monet.json"
    return json.loads(path.read_text())["details"] if path.exists() else {}


def facts() -> dict[str, Any]:
    """What the numbers depend on, and the published ones."""
    published = {name: network.ratio for name, network in NETWORKS.items()}
    return {"published": published, "source": SOURCE, "workspace": WORKSPACE}


def rows(known: dict[str, Any]) -> list[list[str]]:
    """Table 1: ratios to eager's peak, and the ratio below which it is proven that there is nothing."""
    found = []
    for key, entry in known.items():
        if "table1" not in entry:
            continue
        setting, name = key.split("/")
        peak, ways = entry["table1"]["eager_peak"], entry["table1"]["ways"]
        names = ("checkmate-d", "checkmate-o", "monet, exact", "monet")
        cells = [ratio(ways[way]["peak"], peak) if way in ways else "as D" for way in names]
        network, ours = NETWORKS[name], ways["monet"]["peak"]
        mark = "!" if setting == "roofline" and (ours is None or ours > network.target * peak) else ""
        target = f"{network.target:.3f}" if setting == "roofline" else ""
        row = [
            name,
            setting,
            f"{peak / 1e9:.2f}",
            *cells[:3],
            cells[3] + mark,
            ratio(ways["monet"]["lower_bound"], peak),
        ]
        found.append([*row, target, f"{network.ratio:.3f}"])
    return found


def lines(key: str, entry: dict[str, Any]) -> list[str]:
    """The figures in words."""
    said = []
    for point in entry.get("figure6", {}).get("points", []):
        cells = (f"{group} {overhead(found['overhead'])}" for group, found in point["groups"].items())
        said.append(f"{key} figure 6 at {point['share']:g}: {', '.join(cells)}")
    least = entry.get("figure6", {}).get("smallest", {})
    if least:
        cells = (f"{kind} {found['ratio']:.3f}" for kind, found in least.items())
        said.append(f"{key} figure 6, smallest budget: {', '.join(cells)}")
    for point in entry.get("figure3", {}).get("points", []):
        said.append(f"{key} figure 3 at {point['share']:g}: {point['way']} {overhead(point['overhead'])}")
    if "proven" in (fixed := entry.get("speed", {})):
        when = "not" if fixed["proven"] is None else f"after {fixed['proven']:.1f} s"
        said.append(
            f"{key} at {fixed['share']:g}: a gap of {100 * fixed['allowed_gap']:g} % proven {when}; allowed "
            f"{fixed['allowed_seconds']:g} s"
        )
    for race in entry.get("figure4", {}).get("races", []):
        times = ", ".join(f"{name} {race[name]:.2f} s" for name in race if race[name] is not None and " 0." in name)
        said.append(f"{key} solver time at {race['share']:g}: {race['way']}: {times or race['status']}")
    return said


def ratio(peak: int | None, eager: int) -> str:
    return "none" if peak is None else f"{peak / eager:.3f}"


def overhead(found: float | None) -> str:
    return "none" if found is None else f"{100 * found:+.1f} %"


if __name__ == "__main__":
    main()
