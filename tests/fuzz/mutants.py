"""Mutants of JSON documents: a few entries changed, taken away, added or repeated, or the text itself damaged."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.nonsense import OVERFLOWING, entries

ACTIONS = ("vary", "vary", "vary", "replace", "remove", "add", "repeat", "swap", "nest")
DAMAGES = ("", "", "", "", "", "", "", "cut", "byte", "twice")  # most mutants are JSON


def places(entry: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where something stands in a document, the whole of it first."""
    found = [path]
    children = entry.items() if isinstance(entry, dict) else enumerate(entry) if isinstance(entry, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


@st.composite
def mutants(draw: st.DrawFn, original: Any) -> str:
    """The text of a mutant of a document."""
    document = copy.deepcopy(original)
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        document = _mutated(draw, document)
    text = as_text(document)
    damage = draw(st.sampled_from(DAMAGES))
    at = draw(st.integers(0, max(0, len(text) - 1))) if damage else 0
    if damage == "cut":
        return text[:at]
    if damage == "byte":
        return text[:at] + draw(st.sampled_from(("\0", "\ud800", "\\", '"', "{", "]", "9", "-", "e"))) + text[at + 1 :]
    return text + text if damage == "twice" else text


def _varied(draw: st.DrawFn, entry: Any) -> Any:
    """Another entry of the same type, which a file may well have."""
    if isinstance(entry, bool):
        return not entry
    if isinstance(entry, int):
        return draw(st.sampled_from((0, 1, 2, 3, 2**20, 2**50, 2**53)) | st.integers(0, 9))
    if isinstance(entry, float):
        return draw(st.sampled_from((0.0, 5e-324, 1e-300, 1e-12, 0.5, 2.0, 1e12, 1e290, 1e300)) | st.floats(0, 9))
    if isinstance(entry, str):
        return draw(st.sampled_from((entry + "x", "größe", "", "optimal", "feasible", "forward", "backward")))
    return entry


def as_text(document: Any) -> str:
    """A document as JSON, with numbers that Python reads and JSON does not have."""
    return json.dumps(document).replace(f'"{OVERFLOWING}"', "1e400")


def _mutated(draw: st.DrawFn, document: Any) -> Any:
    path = draw(st.sampled_from(places(document)))
    if not path:
        return copy.deepcopy(draw(entries)) if draw(st.booleans()) else document
    place = document
    for key in path[:-1]:
        place = place[key]
    key, action = path[-1], draw(st.sampled_from(ACTIONS))
    if action == "vary":
        place[key] = _varied(draw, place[key])
    elif action == "replace":
        place[key] = copy.deepcopy(draw(entries))
    elif action == "remove":
        del place[key]
    elif action == "nest":
        place[key] = [place[key]]
    elif action == "swap":
        other = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        place[key], place[other] = place[other], place[key]
    elif isinstance(place, list) and isinstance(key, int):
        place.insert(key, copy.deepcopy(place[key] if action == "repeat" else draw(entries)))
    elif isinstance(place, dict):
        place["also"] = copy.deepcopy(draw(entries))
    return document
