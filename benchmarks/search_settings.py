"""Every setting that changed something halved and doubled, beside its default: what each value is worth.

    python benchmarks/search_settings.py --time-limit 1.2

Each run has one thread and the same limit, in processor seconds, and ends early with a gap of 0.01 %. Beside the
default, which runs several times, four figures are compared: the cost that was found (of the memory searches: the
peak), the gap to its bound, and the seconds until that gap was 1 % and 0.01 %. A difference counts if it is larger than
twice the spread of the default's own runs and at least 0.1 % of the cost, 0.1 points of the gap, or a third of the
seconds. Searches that are not named keep the results of the last run.

Settings without a difference have become constants; docs/measured_settings.md lists them all.

"No difference" speaks of these few instances and this limit alone: a setting may matter on larger graphs. One run of a
value is compared, so single differences may be chance.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import processor_clock  # noqa: F401  before anything that looks at the clock
from report import RESULTS, publish

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers import CondensedGraph, Limits, Progress, checkpoint_all_peak, largest_operation
from remat_explorer.solvers.anytime_search.optimal import PLAIN_SEARCH, PlainSearch
from remat_explorer.solvers.batches.batch_bound import LEAST_MEMORY, Allowance, integral_least_factor, least_factor
from remat_explorer.solvers.memory.lowest_peak import LEAST_PLAIN, LEAST_WITH_CHOICES, least_plain, least_with_choices
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data"
COLUMNS = ("search", "setting", "default", "instead", "what changes")
RESULT = RESULTS / "search_settings.json"
CLOSE, PROVEN = 0.01, 1e-4  # gaps until which seconds are counted; a run ends with the second
LEAST = {"cost": 1e-3, "gap": 1e-3, "close": 1 / 3, "proven": 1 / 3}  # differences below which nothing is said
DEFAULT_RUNS = 5
VARIED: dict[str, tuple[str, ...]] = {  # settings within settings; others are varied where their own search is
    "plain": ("local", "moments", "refinement", "rows"),
    "least with choices": (),
    "least plain": (),
    "least factor": (),
}


@dataclass
class Course:
    """What a run knew when, in processor seconds since its start."""

    limit: float
    started: float = field(default_factory=time.process_time)
    cost: float = math.inf
    bound: float = 0.0
    close: float | None = None
    proven: float | None = None

    def learn(self, cost: float | None, bound: float | None) -> None:
        self.cost, self.bound = min(self.cost, cost or math.inf), max(self.bound, bound or 0.0)
        now = time.process_time() - self.started
        if self.close is None and self.gap <= CLOSE:
            self.close = now
        if self.proven is None and self.gap <= PROVEN:
            self.proven = now

    def hear(self, progress: Progress) -> None:
        self.learn(progress.cost, progress.lower_bound)

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound / self.cost)

    def limits(self) -> Limits:
        return Limits(self.limit, report=self.hear, cancelled=lambda: self.gap <= PROVEN)

    def figures(self) -> dict[str, float]:
        """What is compared; a gap that was not reached counts as the whole time."""
        close, proven = (self.limit if at is None else at for at in (self.close, self.proven))
        return {"cost": self.cost, "gap": self.gap, "close": close, "proven": proven}


Run = Callable[[Any, Course], None]


@dataclass(frozen=True)
class Case:
    """A search with one instance, which may have more time than others."""

    search: str
    instance: str
    settings: Any
    run: Run
    longer: float = 1.0


def cases() -> Iterator[Case]:
    """The searches, each with instances that take it up to some seconds."""
    yield Case("plain", "unet", PLAIN_SEARCH, plain(load("captured/unet"), 0.05), 1.5)
    yield Case("plain", "vgg16", PLAIN_SEARCH, plain(load("captured/vgg16"), 0.05))
    yield Case("plain", "mobilenet_v1", PLAIN_SEARCH, plain(load("captured/mobilenet_v1"), 0.2))
    yield Case("plain", "keras_vgg_unet", PLAIN_SEARCH, plain(load("graphs/keras_vgg_unet"), 0.05))
    yield Case("plain", "linear16", PLAIN_SEARCH, plain(load("graphs/linear16"), 0.2), 2.5)
    for name in ("pooled", "residual"):
        yield Case("least with choices", name, LEAST_WITH_CHOICES, least_choices(load(f"ablation/{name}")))
    for name in ("captured/unet", "graphs/linear16"):
        yield Case("least plain", Path(name).name, LEAST_PLAIN, least(load(name)))
    for name in ("captured/resnet50", "graphs/linear16"):
        yield Case("least factor", Path(name).name, LEAST_MEMORY, factor(load(name), 0.1))


def load(name: str) -> Graph:
    return Graph.load(str(DATA / f"{name}.json"))


def budget_of(graph: Graph, fraction: float) -> int:
    """The largest operation, and a fraction of what keeping everything takes beyond it."""
    least = largest_operation(graph)[1]
    return int(least + fraction * (checkpoint_all_peak(graph) - least))


def plain(graph: Graph, fraction: float) -> Run:
    def run(settings: Any, course: Course) -> None:
        budget = budget_of(graph, fraction)
        found = PlainSearch(CondensedGraph.of(graph), budget, course.limits(), settings=settings).run()
        course.learn(found.schedule.cost if found.schedule else None, found.lower_bound)

    return run


def least(graph: Graph) -> Run:
    def run(settings: Any, course: Course) -> None:
        found = least_plain(graph, course.limit, settings)
        course.learn(Plan.of(found.schedule).peak, found.lower_bound)

    return run


def least_choices(graph: Graph) -> Run:
    def run(settings: Any, course: Course) -> None:
        found = least_with_choices(graph, course.limit, settings=settings)
        course.learn(Plan.of(found.schedule).peak, found.lower_bound)

    return run


def factor(graph: Graph, overhead: float) -> Run:
    """A bound alone: what it is compared with is the memory of keeping everything."""

    def run(settings: Any, course: Course) -> None:
        condensed, limits = CondensedGraph.of(graph), course.limits()
        n = condensed.n
        allowance = Allowance(np.zeros(n), np.ones(n), overhead * graph.total_cost)
        relaxed = least_factor(condensed, allowance, limits, settings)
        found = integral_least_factor(condensed, allowance, relaxed, limits, settings=settings)
        course.learn(checkpoint_all_peak(graph), max(relaxed.z, found.z))

    return run


def numbers(
    settings: Any, within: tuple[str, ...], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of every numeric field, of settings within settings only of those that are named.

    >>> dict(numbers(PLAIN_SEARCH, ("local",)))["local", "growth"]
    3
    """
    for one in fields(settings):
        value = getattr(settings, one.name)
        if one.name in within:
            yield from numbers(value, within, (*path, one.name))
        elif isinstance(value, int | float):
            yield (*path, one.name), value


def changed(settings: Any, path: tuple[str, ...], value: Any) -> Any:
    """The settings with another value at a path.

    >>> changed(PLAIN_SEARCH, ("local", "growth"), 5).local.growth
    5
    """
    first, *rest = path
    if rest:
        value = changed(getattr(settings, first), tuple(rest), value)
    return replace(settings, **{first: value})


def measured(place: int, path: tuple[str, ...] = (), value: Any = None, limit: float = 1.0) -> dict[str, float]:
    """Figures of the instance at a place, with another value of the setting at a path."""
    case = _cases()[place]
    course = Course(limit * case.longer)
    case.run(changed(case.settings, path, value) if path else case.settings, course)
    return course.figures()


@cache
def _cases() -> list[Case]:
    return list(cases())


def differences(figures: dict[str, float], defaults: list[dict[str, float]]) -> dict[str, float]:
    """Relative cost, points of the gap, and relative seconds beyond the default's, where they are worth telling."""
    found = {}
    for name, least in LEAST.items():
        known = [one[name] for one in defaults]
        middle = statistics.median(known)
        scale = {"gap": 1.0, "cost": middle}.get(name, max(middle, 0.1))
        difference = (figures[name] - middle) / scale
        if abs(difference) > max(least, 2 * (max(known) - min(known)) / scale):
            found[name] = difference
    return found


def words(changes: dict[str, dict[str, float]]) -> str:
    """What a value changes, by instance.

    >>> words({"unet": {"cost": 0.004, "close": 1.0}, "vgg16": {}})
    'unet 0.4 % more, 1 % after 2.0 times the seconds'
    """
    said = []
    for instance, found in changes.items():
        parts = []
        if "cost" in found:
            parts.append(f"{100 * abs(found['cost']):.1f} % {'more' if found['cost'] > 0 else 'less'}")
        if "gap" in found:
            parts.append(f"gap {100 * found['gap']:+.1f} points")
        for name, gap in (("close", "1 %"), ("proven", "0.01 %")):
            if name in found:
                parts.append(f"{gap} after {1 + found[name]:.1f} times the seconds")
        if parts:
            said.append(f"{instance} {', '.join(parts)}")
    return "; ".join(said) or "no difference"


def measure(search: str, pool: ProcessPoolExecutor, limit: float) -> Iterator[dict[str, Any]]:
    """The default runs of a search, then those with each other value."""
    places = [i for i, case in enumerate(_cases()) if case.search == search]
    settings = _cases()[places[0]].settings
    run = partial(measured, limit=limit)
    again = pool.map(run, places * DEFAULT_RUNS)
    others = [
        (path, value, other)
        for path, value in numbers(settings, VARIED[search])
        for other in (half(value), 2 * value)
        if other
    ]
    figures = pool.map(run, *zip(*((i, path, other) for path, _, other in others for i in places), strict=True))
    defaults: dict[str, list[dict[str, float]]] = {}
    for i, found in zip(places * DEFAULT_RUNS, again, strict=True):
        defaults.setdefault(_cases()[i].instance, []).append(found)
    yield {"search": search, "runs": defaults}
    for path, value, other in others:
        runs = {_cases()[i].instance: next(figures) for i in places}
        changes = {name: differences(runs[name], defaults[name]) for name in runs}
        setting = {"search": search, "setting": ".".join(path), "default": value}
        yield setting | {"value": other, "runs": runs, "changes": changes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=1.2)
    parser.add_argument("--searches", nargs="+", choices=VARIED, default=list(VARIED))
    parser.add_argument("--workers", type=int, default=1, help="runs at a time (default: 1)")
    options = parser.parse_args()
    warm_up()
    before = json.loads(RESULT.read_text())["details"] if RESULT.exists() else []
    details = [one for one in before if one["search"] not in options.searches]
    with ProcessPoolExecutor(options.workers, get_context("fork")) as pool:
        for search in options.searches:
            for one in measure(search, pool, options.time_limit):
                details.append(one)
                if "setting" in one:
                    print(search, one["setting"], f"{one['value']:g}", words(one["changes"]), sep="  ", flush=True)
    rows = [
        [one["search"], one["setting"], f"{one['default']:g}", f"{one['value']:g}", words(one["changes"])]
        for one in details
        if "setting" in one
    ]
    publish("search_settings", COLUMNS, rows, details, time_limit=options.time_limit, threads=1)


def half(value: Any) -> Any:
    """Half of a number, rounded down if it is a whole one."""
    return value // 2 if isinstance(value, int) else value / 2


if __name__ == "__main__":
    main()
