"""What nobody should give: nonsense for options, and mutants of JSON documents, with entries or the text changed."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

OVERFLOWING = "@1e400"  # stands for the number, which no Python number is
ENTRIES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 9, 10, -0.0, 0.5, 5e-324, 1e-300, 1e300, 1e308, -1e308),
    *(2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400, -(10**400)),
    *(float("nan"), float("inf"), float("-inf"), OVERFLOWING),
    *("", " ", "0", "nan", "60%", "smallest", "\0", "\n", "\ud800", "größe", "層"),
    *("a" * 300, "1" * 5000, "../x", "x\x1b[2J"),
    *([], {}, [[]], [None], [0], [1, 1], ["0"], [[0], [1]], {"": 0}, {"name": "x"}, [2**63], [{}]),
    *("optimal", "feasible", "infeasible", "unknown", "forward", "backward", "default", "masks"),
]
WORDS = """
- -- = a= =1 a=b=c 0 -0 1 2 4 9 -1 +3 0.5 .5 5. 1e3 1e-400 1e400 -1e400 1e308 nan inf -inf Infinity 1_000 ٣ ² 0x10
60% 0% 100% 1e400% -5% % 9007199254740993 9223372036854775807 9223372036854775808 18446744073709551616 4,5 , 4,,5,
60%,nan all none smallest exact optimal optimal,dtr optimall monet checkpoint-all highs cbc gurobi HIGHS 10% 0.9 1.3
cpu A100 adam sgd masks masks,pooling cuda:99 auto größe 層 / . .. ~ * $HOME ' " <>& {} [] /dev/null /dev/full
/dev/zero /proc/self/mem /nowhere/x.json missing.json no.py:f .py :f a.py:
"""
TEXTS = [
    *WORDS.split(),
    *("", " ", "60 %%", "1e308 TiB", "1.5 GiB", "1 parsec", "8 EiB", "1" * 400, "1" * 5000, "0" * 99 + "4"),
    *("one extra forward", "\0", "\n", "\udcff", "\x1b[2J", "a" * 300),
]

entries = st.sampled_from(ENTRIES)
texts = st.sampled_from(TEXTS) | st.text(max_size=12)
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
    document = copy.deepcopy(original)
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        document = _mutated(draw, document)
    text = json.dumps(document).replace(f'"{OVERFLOWING}"', "1e400")  # which Python reads, and JSON does not have
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
