"""Graph file, version 1: JSON, unknown keys refused by name, every key required but four.

The key "capture" tells how a graph was captured; graphs that were not captured lack it. The key "overwrites" of an
implementation is there only where its output may take over an input's storage, its key "tolerance" only where its
outputs are not bit-equal, its key "kinds" only where it is of any, and "optional" only in operations that are, where it
is true; so graphs without them keep their fingerprint. The key "details" of an operation says where it comes from in
the person's code; it is no part of the fingerprint, so that solutions belong to graphs with and without it:

    {"module": "features.3", "operator": "conv2d", "shapes": ["8x64x32x32"], "line": "net.py:42"}
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.documents import quote, require_format, require_keys, write_text
from remat_explorer.errors import GraphError, RematError, UnknownNameError
from remat_explorer.graph.contents import Contents
from remat_explorer.graph.parts import Implementation, Operation, Value
from remat_explorer.operation_details import Details

FORMAT, VERSION = "remat-explorer/graph", 1
_GRAPH = ("format", "version", "name", "resident_bytes", "values", "operations")
_OPTIONS = tuple(field.name for field in dataclasses.fields(CaptureOptions))
_VALUE = ("name", "bytes", "persistent")
_OPERATION = ("name", "phase", "implementations")
_IMPLEMENTATION = ("name", "inputs", "outputs", "cost", "workspace")
_DETAILS = tuple(field.name for field in dataclasses.fields(Details))


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
                        **({"tolerance": float(way.tolerance)} if way.tolerance else {}),
                        **({"kinds": list(way.kinds)} if way.kinds else {}),
                    }
                    for way in node.implementations
                ],
                **({"optional": True} if node.optional else {}),
                **({"details": dataclasses.asdict(node.details)} if details and node.details is not None else {}),
            }
            for node in graph.operations
        ],
    }
    if graph.options is not None:
        document["capture"] = options_document(graph.options)
    return json.dumps(document, separators=(",", ":"))


def parse_graph(document: Any) -> tuple[str, tuple[Value, ...], tuple[Operation, ...], int, CaptureOptions | None]:
    """The fields of `Graph`, in their order, of a parsed graph file.

    Raises:
        GraphError: naming what is missing, unknown or impossible, with the entry quoted.
    """
    captured = isinstance(document, dict) and "capture" in document
    require_keys(document, (*_GRAPH, *(["capture"] if captured else [])), "the graph file", GraphError)
    require_format(document, FORMAT, VERSION, GraphError)
    name = _string(document["name"], "the graph's name")
    values = tuple(_value(entry, f"value {v}") for v, entry in enumerate(_list(document["values"], "values")))
    operations = tuple(
        _operation(entry, f"operation {k}", len(values))
        for k, entry in enumerate(_list(document["operations"], "operations"))
    )
    options = parse_options(document["capture"], GraphError) if captured else None
    return name, values, operations, document["resident_bytes"], options


def save_graph(graph: Contents, path: str | Path) -> Path:
    """Write the graph file atomically."""
    return write_text(path, dump_graph(graph, details=True) + "\n")


def options_document(options: CaptureOptions) -> dict[str, Any]:
    """The capture options as a graph or solution file has them: without "implementations" where there are none."""
    document = dataclasses.asdict(options)
    if not document["implementations"]:
        del document["implementations"]
    return document


def parse_options(entry: Any, error: type[RematError]) -> CaptureOptions:
    """The capture options of a graph or solution file; ``error`` is raised where they are none."""
    chosen = isinstance(entry, dict) and "implementations" in entry
    require_keys(entry, [key for key in _OPTIONS if chosen or key != "implementations"], '"capture"', error)
    if chosen and not (isinstance(entry["implementations"], list) and entry["implementations"]):
        raise error(f'"capture" has implementations that are no list of kinds: {quote(entry)}')
    for key in ("contract", "split_convolution_backward", "fake"):
        if not isinstance(entry[key], bool):
            raise error(f'"capture" has {key} that is not true or false: {quote(entry)}')
    if not isinstance(entry["optimizer"], str | None):
        raise error(f'"capture" has an optimizer that is neither a string nor null: {quote(entry)}')
    try:
        return CaptureOptions(**{**entry, "implementations": tuple(entry.get("implementations", ()))})
    except UnknownNameError as unknown:
        raise error(f'"capture": {unknown}') from None


def _list(entry: Any, where: str) -> list[Any]:
    if not isinstance(entry, list):
        raise GraphError(f"{where} is not a list: {quote(entry)}")
    return entry


def _string(entry: Any, where: str) -> str:
    if not isinstance(entry, str):
        raise GraphError(f"{where} is not a string: {quote(entry)}")
    return entry


def _value(entry: Any, where: str) -> Value:
    require_keys(entry, _VALUE, where, GraphError)
    if not isinstance(entry["persistent"], bool):
        raise GraphError(f"{where} has a persistent flag that is not true or false: {quote(entry)}")
    _string(entry["name"], f"the name of {where}")
    try:
        return Value(entry["name"], entry["bytes"], entry["persistent"])
    except GraphError as error:
        raise GraphError(f"{where}: {error}: {quote(entry)}") from None


def _operation(entry: Any, where: str, value_count: int) -> Operation:
    more = [key for key in ("optional", "details") if isinstance(entry, dict) and key in entry]
    optional, detailed = "optional" in more, "details" in more
    require_keys(entry, (*_OPERATION, *more), where, GraphError)
    name = _string(entry["name"], f"the name of {where}")
    if optional and entry["optional"] is not True:
        raise GraphError(f"{where} ({name!r}) has an optional flag that is not true: {quote(entry)}")
    ways = []
    for item in _list(entry["implementations"], f"implementations of {where}"):
        extra = [key for key in ("overwrites", "tolerance", "kinds") if isinstance(item, dict) and key in item]
        overwriting = "overwrites" in extra
        require_keys(item, (*_IMPLEMENTATION, *extra), f"an implementation of {where} ({name!r})", GraphError)
        if isinstance(item["cost"], bool) or not isinstance(item["cost"], int | float) or not item["cost"] >= 0:
            raise GraphError(f"{where} ({name!r}) has a cost that is not a number of at least 0: {quote(item)}")
        if isinstance(item["workspace"], bool) or not isinstance(item["workspace"], int) or item["workspace"] < 0:
            raise GraphError(f"{where} ({name!r}) has a workspace that is not bytes of at least 0: {quote(item)}")
        for key in ("inputs", "outputs"):
            for v in _list(item[key], f"{key} of {where}"):
                if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < value_count:
                    raise GraphError(f"{where} ({name!r}) names value {v!r} of {value_count}: {quote(item)}")
        if overwriting and (isinstance(item["overwrites"], bool) or item["overwrites"] not in item["inputs"]):
            raise GraphError(f"{where} ({name!r}) overwrites a value that is none of its inputs: {quote(item)}")
        kinds = _list(item.get("kinds", []), f"the kinds of an implementation of {where}")
        if "kinds" in extra and not kinds:
            raise GraphError(f"{where} ({name!r}) has an empty list of kinds: {quote(item)}")
        ways.append(
            Implementation(
                tuple(item["inputs"]),
                tuple(item["outputs"]),
                item["cost"],
                item["workspace"],
                _string(item["name"], f"the name of an implementation of {where}"),
                item.get("overwrites"),
                item.get("tolerance", 0.0),
                tuple(_string(kind, f"a kind of an implementation of {where}") for kind in kinds),
            )
        )
    details = _details(entry["details"], where) if detailed else None
    return Operation(name, entry["phase"], tuple(ways), optional, details)


def _details(entry: Any, where: str) -> Details:
    require_keys(entry, _DETAILS, f"the details of {where}", GraphError)
    for key in ("module", "operator", "line"):
        _string(entry[key], f"the {key} of {where}")
    shapes = tuple(_string(shape, f"a shape of {where}") for shape in _list(entry["shapes"], f"the shapes of {where}"))
    return Details(entry["module"], entry["operator"], shapes, entry["line"])
