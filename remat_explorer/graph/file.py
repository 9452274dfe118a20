"""Graph file, version 1: JSON, unknown keys refused by name, every key required but seven.

The key "capture" tells how a graph was captured; graphs that were not captured lack it. The key "captured_structure"
is there only where a profile found other storages than were captured. Of an implementation, the key "overwrites" is
there only where its output may take over an input's storage, "in_place" only where it may run only where that input
dies, and then true, "tolerance" only where its outputs are not bit-equal, and "kinds" only where it is of any; and
"optional" is there only in operations that are, where it is true. So graphs without them keep their fingerprint.
The key "details" of an operation says where it comes from in the person's
code; it is no part of the fingerprint, so that solutions belong to graphs with and without it:

    {"module": "features.3", "operator": "conv2d", "shapes": ["8x64x32x32"], "line": "net.py:42"}
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.documents import quote, require_format, require_keys, write_text
from remat_explorer.entry_checks import require_bytes, require_list, require_number, require_text
from remat_explorer.errors import GraphError, RematError, UnknownNameError
from remat_explorer.graph.parts import Contents, Implementation, Operation, Value
from remat_explorer.operation_details import Details

FORMAT, VERSION = "remat-explorer/graph", 1
_GRAPH = ("format", "version", "name", "resident_bytes", "values", "operations")
_OPTIONS = tuple(field.name for field in dataclasses.fields(CaptureOptions))
_CHOSEN = ("implementations", "kernels")  # options that are there only where they say something
_VALUE = ("name", "bytes", "persistent")
_OPERATION = ("name", "phase", "implementations")
_IMPLEMENTATION = ("name", "inputs", "outputs", "cost", "workspace")
_DETAILS = ("module", "operator", "shapes", "line")  # not the source itself, which stays with who captured


def dump_graph(graph: Contents, details: bool = False) -> str:
    """The graph as JSON text; equal graphs give equal text, as long as ``details`` stay out of it."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "resident_bytes": graph.resident_bytes,
        "values": [{"name": v.name, "bytes": v.bytes, "persistent": v.persistent} for v in graph.values],
        "operations": [
            {
                "name": node.name,
                "phase": node.phase,
                "implementations": [
                    {
                        "name": way.name,
                        "inputs": list(way.inputs),
                        "outputs": list(way.outputs),
                        "cost": float(way.cost),
                        "workspace": way.workspace,
                        **({} if way.overwrites is None else {"overwrites": way.overwrites}),
                        **({"in_place": True} if way.in_place else {}),
                        **({"tolerance": float(way.tolerance)} if way.tolerance else {}),
                        **({"kinds": list(way.kinds)} if way.kinds else {}),
                    }
                    for way in node.implementations
                ],
                **({"optional": True} if node.optional else {}),
                **({"details": _details_document(node.details)} if details and node.details is not None else {}),
            }
            for node in graph.operations
        ],
    }
    if graph.options is not None:
        document["capture"] = options_document(graph.options)
    if graph.captured_structure is not None:
        document["captured_structure"] = graph.captured_structure
    return json.dumps(document, separators=(",", ":"))


def parse_graph(
    document: Any,
) -> tuple[str, tuple[Value, ...], tuple[Operation, ...], int, CaptureOptions | None, str | None]:
    """The fields of `Graph`, in their order, of a parsed graph file."""
    require_format(document, FORMAT, VERSION, GraphError)
    more = [key for key in ("capture", "captured_structure") if key in document]
    require_keys(document, (*_GRAPH, *more), "the graph file", GraphError)
    name = require_text(document["name"], "the graph's name", GraphError)
    entries = require_list(document["values"], "values", GraphError)
    values = tuple(_value(entry, f"value {v}") for v, entry in enumerate(entries))
    operations = tuple(
        _operation(entry, f"operation {k}", len(values))
        for k, entry in enumerate(require_list(document["operations"], "operations", GraphError))
    )
    options = parse_options(document["capture"], GraphError) if "capture" in more else None
    structure = None
    if "captured_structure" in more:
        structure = require_text(document["captured_structure"], "the structure as captured", GraphError)
    return name, values, operations, document["resident_bytes"], options, structure


def save_graph(graph: Contents, path: str | Path) -> Path:
    """Write the graph file atomically."""
    return write_text(path, dump_graph(graph, details=True) + "\n")


def options_document(options: CaptureOptions) -> dict[str, Any]:
    """The capture options as a graph or solution file has them: without those of `_CHOSEN` that say nothing."""
    document = dataclasses.asdict(options)
    return {key: entry for key, entry in document.items() if entry or key not in _CHOSEN}


def parse_options(entry: Any, error: type[RematError]) -> CaptureOptions:
    """The capture options of a graph or solution file; ``error`` is raised where they are none."""
    chosen = [key for key in _CHOSEN if isinstance(entry, dict) and key in entry]
    require_keys(entry, [key for key in _OPTIONS if key in chosen or key not in _CHOSEN], '"capture"', error)
    kinds = entry.get("implementations", [])
    if "implementations" in chosen and not (
        isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds)
    ):
        raise error(f'"capture" has implementations that are no list of kinds: {quote(entry)}')
    for key in ("contract", "split_convolution_backward", "fake"):
        if not isinstance(entry[key], bool):
            raise error(f'"capture" has {key} that is not true or false: {quote(entry)}')
    if "kernels" in chosen and not isinstance(entry["kernels"], str):
        raise error(f'"capture" has kernels that are no string: {quote(entry)}')
    if not isinstance(entry["optimizer"], str | None):
        raise error(f'"capture" has an optimizer that is neither a string nor null: {quote(entry)}')
    try:
        return CaptureOptions(**{**entry, "implementations": tuple(entry.get("implementations", ()))})
    except UnknownNameError as unknown:
        raise error(f'"capture": {unknown}') from None


def _value(entry: Any, where: str) -> Value:
    require_keys(entry, _VALUE, where, GraphError)
    if not isinstance(entry["persistent"], bool):
        raise GraphError(f"{where} has a persistent flag that is not true or false: {quote(entry)}")
    require_text(entry["name"], f"the name of {where}", GraphError)
    try:
        return Value(entry["name"], entry["bytes"], entry["persistent"])
    except GraphError as error:
        raise GraphError(f"{where}: {error}: {quote(entry)}") from None


def _operation(entry: Any, where: str, value_count: int) -> Operation:
    more = [key for key in ("optional", "details") if isinstance(entry, dict) and key in entry]
    optional, detailed = "optional" in more, "details" in more
    require_keys(entry, (*_OPERATION, *more), where, GraphError)
    name = require_text(entry["name"], f"the name of {where}", GraphError)
    if optional and entry["optional"] is not True:
        raise GraphError(f"{where} ({name!r}) has an optional flag that is not true: {quote(entry)}")
    ways = []
    for item in require_list(entry["implementations"], f"implementations of {where}", GraphError):
        extra = [
            key for key in ("overwrites", "in_place", "tolerance", "kinds") if isinstance(item, dict) and key in item
        ]
        overwriting = "overwrites" in extra
        require_keys(item, (*_IMPLEMENTATION, *extra), f"an implementation of {where} ({name!r})", GraphError)
        _numbers(item, f"{where} ({name!r})")
        for key in ("inputs", "outputs"):
            for v in require_list(item[key], f"{key} of {where}", GraphError):
                if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < value_count:
                    raise GraphError(f"{where} ({name!r}) names value {quote(v)} of {value_count}: {quote(item)}")
        if overwriting and (isinstance(item["overwrites"], bool) or item["overwrites"] not in item["inputs"]):
            raise GraphError(f"{where} ({name!r}) overwrites a value that is none of its inputs: {quote(item)}")
        if "in_place" in extra and item["in_place"] is not True:
            raise GraphError(f"{where} ({name!r}) has an in_place flag that is not true: {quote(item)}")
        kinds = require_list(item.get("kinds", []), f"the kinds of an implementation of {where}", GraphError)
        if "kinds" in extra and not kinds:
            raise GraphError(f"{where} ({name!r}) has an empty list of kinds: {quote(item)}")
        ways.append(
            Implementation(
                tuple(item["inputs"]),
                tuple(item["outputs"]),
                float(item["cost"]),
                item["workspace"],
                require_text(item["name"], f"the name of an implementation of {where}", GraphError),
                item.get("overwrites"),
                item.get("tolerance", 0.0),
                tuple(require_text(kind, f"a kind of an implementation of {where}", GraphError) for kind in kinds),
                "in_place" in extra,
            )
        )
    details = _details(entry["details"], where) if detailed else None
    return Operation(name, entry["phase"], tuple(ways), optional, details)


def _numbers(item: dict[str, Any], where: str) -> None:
    """Refuse an implementation whose cost, workspace or tolerance is none, quoting all of it."""
    try:
        require_number(item["cost"], "the cost", GraphError)
        require_bytes(item["workspace"], "the workspace", GraphError)
        require_number(item.get("tolerance", 0.0), "the tolerance", GraphError)
    except GraphError as error:
        raise GraphError(f"{where}: {error}, in {quote(item)}") from None


def _details_document(details: Details) -> dict[str, Any]:
    return {key: getattr(details, key) for key in _DETAILS}


def _details(entry: Any, where: str) -> Details:
    require_keys(entry, _DETAILS, f"the details of {where}", GraphError)
    for key in ("module", "operator", "line"):
        require_text(entry[key], f"the {key} of {where}", GraphError)
    entries = require_list(entry["shapes"], f"the shapes of {where}", GraphError)
    shapes = tuple(require_text(shape, f"a shape of {where}", GraphError) for shape in entries)
    return Details(entry["module"], entry["operator"], shapes, entry["line"])
