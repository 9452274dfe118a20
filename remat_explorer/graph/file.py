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
from remat_explorer.documents import write_text
from remat_explorer.entry_checks import (
    Table,
    as_it_is,
    list_of,
    or_null,
    read_document,
    read_entry,
    require_bytes,
    require_flag,
    require_number,
    require_text,
    require_true,
    require_whole,
)
from remat_explorer.errors import GraphError, RematError, UnknownNameError
from remat_explorer.graph.parts import Contents, Implementation, Operation, Value
from remat_explorer.operation_details import Details

FORMAT, VERSION = "remat-explorer/graph", 1
_OPTIONS: Table = {
    "contract": require_flag,
    "split_convolution_backward": require_flag,
    "optimizer": or_null(require_text),
    "fake": require_flag,
}
_CHOSEN: Table = {"implementations": list_of(require_text, empty=False), "kernels": require_text}
_IMPLEMENTATION: Table = {
    "name": require_text,
    "inputs": list_of(require_whole),
    "outputs": list_of(require_whole),
    "cost": require_number,
    "workspace": require_bytes,
}
_SOMETIMES: Table = {
    "overwrites": require_whole,
    "in_place": require_true,
    "tolerance": require_number,
    "kinds": list_of(require_text, empty=False),
}
_DETAILS: Table = {  # not the source itself, which stays with who captured
    "module": require_text,
    "operator": require_text,
    "shapes": list_of(require_text),
    "line": require_text,
}


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
    optional: Table = {"capture": parse_options, "captured_structure": require_text}
    read = read_document(document, FORMAT, VERSION, GraphError, _GRAPH, optional)
    more = read.get("capture"), read.get("captured_structure")
    return read["name"], read["values"], read["operations"], read["resident_bytes"], *more


def save_graph(graph: Contents, path: str | Path) -> Path:
    """Write the graph file atomically."""
    return write_text(path, dump_graph(graph, details=True) + "\n")


def options_document(options: CaptureOptions) -> dict[str, Any]:
    """The capture options as a graph or solution file has them: without those of `_CHOSEN` that say nothing."""
    document = dataclasses.asdict(options)
    return {key: entry for key, entry in document.items() if entry or key not in _CHOSEN}


def parse_options(entry: Any, where: str, error: type[RematError]) -> CaptureOptions:
    """The reader of the capture options of a graph or solution file."""
    try:
        return CaptureOptions(**read_entry(entry, where, error, _OPTIONS, _CHOSEN))
    except UnknownNameError as unknown:
        raise error(f"{where}: {unknown}") from None


def _read_value(entry: Any, where: str, error: type[RematError]) -> Value:
    return Value(**read_entry(entry, where, error, _VALUE))


def _read_operation(entry: Any, where: str, error: type[RematError]) -> Operation:
    more: Table = {"optional": require_true, "details": _read_details}
    return Operation(**read_entry(entry, where, error, _OPERATION, more))


def _read_implementation(entry: Any, where: str, error: type[RematError]) -> Implementation:
    read = read_entry(entry, where, error, _IMPLEMENTATION, _SOMETIMES)
    return Implementation(**{**read, "cost": float(read["cost"])})


def _read_details(entry: Any, where: str, error: type[RematError]) -> Details:
    return Details(**read_entry(entry, where, error, _DETAILS))


_VALUE: Table = {"name": require_text, "bytes": require_bytes, "persistent": require_flag}
_OPERATION: Table = {
    "name": require_text,
    "phase": as_it_is,
    "implementations": list_of(_read_implementation),
}
_GRAPH: Table = {
    "name": require_text,
    "resident_bytes": require_bytes,
    "values": list_of(_read_value),
    "operations": list_of(_read_operation),
}


def _details_document(details: Details) -> dict[str, Any]:
    return {key: getattr(details, key) for key in _DETAILS}
