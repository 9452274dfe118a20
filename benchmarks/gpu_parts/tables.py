"""The tables of a folder of results, as Markdown. Loads no torch.

What a later program adds to the file becomes a column by one more line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpu_parts.catalogue import PARTS
from gpu_parts.columns import Column, Entry, of, of_bytes, results, rows_table, share, shortened
from gpu_parts.layers import layer_rows
from gpu_parts.record import PROBLEM, STOPPED, Record
from gpu_parts.spread import QUANTILES, by_type_rows, spread_rows
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds

INTRODUCTION = """# Measured on a GPU

What `benchmarks/gpu.py` measured, failures included, as they were on the day; CHANGELOG.md says what has been mended
since. Predicted peaks were known before the step ran. This page is made by a command from the files of the results:

```sh
python benchmarks/gpu.py --tables benchmarks/results/gpu > docs/gpu.md
```"""


def tables(found: Mapping[str, Record]) -> str:
    """A page: the table of every part that has a file, what was stopped and what failed, and what has not run."""
    blocks = [INTRODUCTION]
    for name, record in ((name, found[name]) for name in PARTS if name in found):
        title = f"## `{name}`: {PARTS[name].title}"
        blocks.append(f"{title}\n\n{where(record)}\n\n{TABLES[name](record)}{left(record)}")
    if absent := [f"- `{name}`: {part.title}" for name, part in PARTS.items() if name not in found]:
        blocks.append("## Not run yet\n\n" + "\n".join(absent))
    return "\n\n".join(blocks)


def where(record: Record) -> str:
    """Machine and time of a record, on one line."""
    facts = record.machine
    parts = [f"{facts.get('device', 'no device')}", f"PyTorch {facts.get('torch', 'unknown')}"]
    parts += [f"CUDA {facts['cuda']}, cuDNN {facts['cudnn']}"] if "cuda" in facts else []
    parts += [f"driver {facts['driver']}"] if facts.get("driver") else []
    parts += [facts["date"]] if "date" in facts else []
    done = len(record.names) - len(record.missing)
    return f"{', '.join(parts)}; {done} of {len(record.names)} done in {record.seconds:.0f} s."


def left(record: Record) -> str:
    """What was stopped or failed, one line each; nothing is left out in silence."""
    lines = [_first_names(record.words)] if record.words else []
    for name, entry in record.units.items():
        if PROBLEM in entry and entry.get("outcome") is None:
            lines.append(f"{name}: {shortened(entry[PROBLEM])}")
        if STOPPED in entry:
            lines.append(f"{name}: stopped, {entry[STOPPED]}")
    return "\n" * bool(lines) + "".join(f"\n- {line}" for line in lines)


def _first_names(words: str, shown: int = 3) -> str:
    """The words of a record with the first units that were not done, and how many more there are."""
    said, _, names = words.partition("not done: ")
    units = names.split(", ")
    more = f" and {len(units) - shown} more" if len(units) > shown + 1 else ""
    return f"{said}not done: {', '.join(units[:shown])}{more}" if more else words


MEMORY = (
    Column("model", of("model")),
    Column("size", of("size")),
    Column("budget", of("share")),
    Column("schedule", of("source")),
    Column("predicted", of_bytes("predicted_peak")),
    Column("measured", of_bytes("measured_peak")),
    Column("error", of("error", show=share)),
    Column("without resident", of("dynamic_error", show=share)),
    Column("requested", of_bytes("step", "requested_bytes")),
    Column("allocated", of_bytes("step", "allocated_bytes")),
    Column("allocated, predicted", of_bytes("predicted_step", "allocated_bytes")),
    Column("reserved", of_bytes("step", "reserved_bytes")),
    Column("reserved, predicted", of_bytes("predicted_step", "reserved_bytes")),
    Column("cost predicted", of("predicted_overhead", show=format_overhead)),
    Column("time measured", of("measured_overhead", show=format_overhead)),
    Column("results", results),
    Column("plain: peak", of_bytes("eager_peak")),
    Column("plain: time", of("eager_seconds", show=format_seconds)),
    Column("note", lambda run: shortened(run.get(PROBLEM) or run.get("missing") or "", 120) or None),
)


def memory(record: Record) -> str:
    """One row for each model and budget."""
    rows = [
        {"model": name, "size": entry.get("size")} | run
        for name, entry in record.units.items()
        for run in entry.get("runs", [])
    ]
    return rows_table(MEMORY, rows)


STEPS = (
    Column("model", of("model")),
    Column("batch", of("batch")),
    Column("step", of("step")),
    Column("seconds", of("seconds")),
    Column("what the explorer says", lambda step: shortened(step["says"], 400)),
)


def explorer(record: Record) -> str:
    """What the explorer said after each step, the results, and what the panel of the execution shows."""
    steps, runs, panels = [], [], []
    for name, entry in record.units.items():
        steps += [{"model": name, "batch": entry.get("batch")} | step for step in entry.get("steps", [])]
        runs.append({"model": name, "size": f"batch {entry.get('batch')}"} | entry)
        panels += [f"{name}, the panel: {entry['panel']}"] if "panel" in entry else []
    return "\n\n".join([rows_table(STEPS, steps), rows_table(MEASURED, runs), *panels])


MEASURED = tuple(column for column in MEMORY if column.title in ("model", "size", "predicted", "measured", "error"))
MEASURED += tuple(column for column in MEMORY if column.title in ("results", "plain: peak", "time measured", "note"))
TRAINING = (
    Column("model", of("model")),
    Column("size", of("size")),
    Column("losses", lambda entry: _losses(entry["ours"]["losses"], entry["plain"]["losses"])),
    Column("plain PyTorch again", lambda entry: _losses(entry["again"]["losses"], entry["plain"]["losses"])),
    Column("parameters", of("parameters_equal", show=lambda equal: "equal" if equal else "DIFFER")),
    Column("budget", of_bytes("ours", "budget")),
    Column("predicted", of_bytes("ours", "predicted")),
    Column("peak", of_bytes("ours", "peak")),
    Column("plain: peak", of_bytes("plain", "peak")),
    Column("step", of("ours", "seconds", show=format_seconds)),
    Column("plain: step", of("plain", "seconds", show=format_seconds)),
)


def _losses(mine: list[float], theirs: list[float]) -> str:
    apart = max(abs(a - b) for a, b in zip(mine, theirs, strict=True))
    return "equal" if mine == theirs else f"differ by {apart:.2g}"


def training(record: Record) -> str:
    """One row for each model."""
    return rows_table(TRAINING, [{"model": name} | e for name, e in record.units.items() if "ours" in e])


def convolutions(record: Record) -> str:
    """The schedule that ran on each convolution, and every implementation of each operation."""
    units = record.units.items()
    words = sorted({entry["cudnn"] for _, entry in units if "cudnn" in entry})
    runs = [{"model": name, "size": f"{e['of cuDNN']} of cuDNN"} | e["ours"] for name, e in units if "ours" in e]
    blocks = [f"{name}:\n\n{rows_table(CONVOLUTION, entry['rows'])}" for name, entry in units if "rows" in entry]
    return "\n\n".join([f"cuDNN's plans: {'; '.join(words) or 'unknown'}.", rows_table(MEASURED, runs), *blocks])


def marked_tests(record: Record) -> str:
    """How many tests passed, failed and were skipped, and every failure."""
    counts: dict[str, int] = {}
    for entry in record.units.values():
        outcome = entry.get("outcome", "crashed" if PROBLEM in entry else "stopped")
        counts[outcome] = counts.get(outcome, 0) + 1
    failed = [{"test": name} | entry for name, entry in record.units.items() if entry.get("outcome") == "failed"]
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no test has run"
    columns = (Column("test", of("test")), Column("what it says", lambda entry: shortened(entry[PROBLEM][-220:])))
    return f"{words}\n\n{rows_table(columns, failed)}" if failed else words


EXACTNESS = (
    Column("model", of("model")),
    Column("setting", of("setting")),
    Column("results", results),
    Column("where", lambda run: shortened((run.get("difference_begins") or {}).get("text", ""), 80) or None),
    Column("recomputations", of("recomputations")),
    Column("error of the peak", of("error", show=share)),
)


def exactness(record: Record) -> str:
    """One row for each model and setting, and one sentence for each kind of random models."""
    rows, drawn = [], []
    for name, entry in record.units.items():
        what, _, which = name.partition(": ")
        if "roads" in entry:
            words = "; ".join(entry["different"]) or "equal"
            drawn.append({"kind": what, "seed": which, "roads": entry["roads"], "results": shortened(words)})
        elif "gradients_equal" in entry:
            rows.append({"model": what, "setting": which} | entry)
    columns = tuple(Column(title, of(title)) for title in ("kind", "seed", "roads", "results"))
    random_models = rows_table(columns, drawn) if drawn else "No random model was run."
    return f"{rows_table(EXACTNESS, rows)}\n\n{random_models}"


def _ratio(name: str, key: str = "peak") -> Callable[[Entry], Any]:
    return lambda entry: f"{entry['ways'][name][key] / entry['eager_peak']:.3f}"


TABLE_ONE = (
    Column("network", of("network")),
    Column("size", of("size")),
    Column("implementations", of("implementations")),
    Column("of cuDNN", of("of cuDNN")),
    Column("eager", of_bytes("eager_peak")),
    Column("checkmate-d", _ratio("checkmate-d")),
    Column("checkmate-o", _ratio("checkmate-o")),
    Column("exact", _ratio("monet, exact")),
    Column("monet", _ratio("monet")),
    Column("proven", _ratio("monet", "lower_bound")),
    Column("MONeT", of("published")),
    Column("measured peak", of_bytes("ways", "monet", "measured", "peak")),
    Column("predicted", of_bytes("ways", "monet", "measured", "predicted_peak")),
    Column("plain: peak", of_bytes("ways", "monet", "measured", "eager_peak")),
    Column("time", lambda entry: _over(entry["ways"]["monet"]["measured"])),
)
POINTS = (
    Column("network", of("network")),
    Column("share", of("share")),
    Column("cost predicted", of("overhead", show=lambda found: f"{found:+.1%}")),
    Column("time measured", lambda point: _over(point["measured"])),
    Column("predicted", of_bytes("measured", "predicted_peak")),
    Column("measured peak", of_bytes("measured", "peak")),
    Column("plain: peak", of_bytes("measured", "eager_peak")),
    Column("gradients differ by", of("measured", "gradient_difference", show=lambda found: f"{found:.2g}")),
    Column("note", lambda point: shortened((point.get("measured") or {}).get("word") or point.get("word") or "", 100)),
)
CONVOLUTION = (
    Column("operation", of("part")),
    Column("implementation", of("implementation")),
    Column("kind", of("kind")),
    Column("time", of("seconds", show=format_seconds)),
    Column("workspace", of_bytes("workspace")),
)


LAYERS = (
    Column("network", of("network")),
    Column("layer", of("layer")),
    Column("saved", of_bytes("saved")),
    Column("overhead, of one pass", of("overhead", show=share)),
)


def _over(measured: Entry) -> str:
    return format_overhead(measured["seconds"] / measured["eager_seconds"])


def monet_paper(record: Record) -> str:
    """Table 1, the measured points of Figure 3, and the implementations of Figure 7's convolution."""
    units = record.units.items()
    networks = [{"network": name} | entry for name, entry in units if "ways" in entry]
    points = [{"network": name.partition(":")[0]} | p for name, entry in units for p in entry.get("points", [])]
    rows = [row for entry in record.units.values() for row in entry.get("rows", [])]
    words = sorted({entry["cudnn"] for entry in record.units.values() if "cudnn" in entry})
    parts = [
        f"cuDNN's plans: {'; '.join(words) or 'unknown'}.",
        f"Table 1: memory at 10 % overhead, of eager's.\n\n{rows_table(TABLE_ONE, networks)}",
        f"Figure 3, measured (at 60 % Figure 5's schedule).\n\n{rows_table(POINTS, points)}",
        f"Figure 5.\n\n{rows_table(LAYERS, layer_rows(record.units))}",
        f"Figure 7.\n\n{rows_table(CONVOLUTION, rows)}",
    ]
    return "\n\n".join(parts)


def costs(record: Record) -> str:
    """How far predicted costs are from measured ones, by model and by type of operation."""
    found = {name: entry for name, entry in record.units.items() if "rows" in entry}
    return f"{rows_table(SPREAD, spread_rows(found))}\n\n{rows_table(BY_TYPE, by_type_rows(found))}"


SPREAD = (
    Column("model", of("model")),
    Column("size", of("size")),
    Column("computations", of("count")),
    Column("predicted", of("predicted", show=format_seconds)),
    Column("measured", of("measured", show=format_seconds)),
    *(Column(f"measured / predicted, {q}", of(q, show=lambda found: f"{found:.2f}")) for q in QUANTILES),
    Column("time within a factor of 2", of("within", show=lambda found: f"{found:.0%}")),
    Column("faster implementation predicted", of("told", show=lambda found: f"{found:.0%}")),
)
BY_TYPE = (
    Column("operation", of("type")),
    Column("computations", of("count")),
    Column("measured", of("measured", show=format_seconds)),
    Column("measured / predicted", of("ratio", show=lambda found: f"{found:.2f}")),
)
WAYS = (
    Column("model", of("model")),
    Column("way", of("title")),
    Column("peak", of_bytes("measured_peak")),
    Column("predicted", of_bytes("predicted_peak")),
    Column("time", of("overhead", show=format_overhead)),
    Column("gradients", lambda peer: {True: "equal", False: "DIFFER"}.get(peer["gradients_equal"])),
    Column("buffers", lambda peer: {True: "equal", False: "DIFFER"}.get(peer["buffers_equal"])),
    Column("ours: peak", of_bytes("ours", "measured_peak")),
    Column("cost predicted", of("ours", "predicted_overhead", show=format_overhead)),
    Column("time measured", lambda peer: format_overhead(peer["ours"]["seconds"] / peer["ours"]["eager_seconds"])),
    Column("status", of("ours", "status")),
    Column("note", lambda peer: shortened(peer.get("problem") or (peer.get("ours") or {}).get("problem") or "", 100)),
)


def pytorch_ways(record: Record) -> str:
    """One row for each way of each model, and our schedule at its peak."""
    rows = []
    for name, entry in record.units.items():
        for peer in entry.get("peers", []):
            title = f"{peer['name']} ({peer['knob']})" if peer["knob"] else peer["name"]
            ours = entry["ours"].get(str(peer["measured_peak"]))
            rows.append({"model": name, "title": title, "ours": ours} | peer)
    return rows_table(WAYS, rows)


COMPILED = (
    Column("model", of("model")),
    Column("way", of("way")),
    Column("budget", lambda entry: found if isinstance(found := entry.get("budget", ""), str) else format_bytes(found)),
    Column("predicted", of_bytes("predicted_peak")),
    Column("after fusion", of_bytes("fused_peak")),
    Column("peak", of_bytes("peak")),
    Column("within", of("within", show=lambda kept: "yes" if kept else "NO")),
    Column("time", of("seconds", show=format_seconds)),
    Column("to the first step", of("seconds_to_start", show=format_seconds)),
    Column("gradients differ by", of("gradient_difference", show=lambda found: f"{found:.2g}")),
    Column("note", lambda entry: shortened(entry.get(PROBLEM) or "", 100)),
)


def compiled(record: Record) -> str:
    """One row for each model and way."""
    rows = []
    for name, entry in record.units.items():
        model, _, way = name.partition(": ")
        rows.append({"model": model, "way": way} | entry)
    return rows_table(COMPILED, rows)


TABLES: dict[str, Callable[[Record], str]] = {
    "validation": memory,
    "explorer": explorer,
    "training": training,
    "convolutions": convolutions,
    "marked_tests": marked_tests,
    "memory": memory,
    "exactness": exactness,
    "monet_paper": monet_paper,
    "costs": costs,
    "pytorch_ways": pytorch_ways,
    "compiled": compiled,
}
