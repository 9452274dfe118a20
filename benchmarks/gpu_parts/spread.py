"""How far predicted costs are from measured ones. Loads no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

Rows = list[list[Any]]  # operation, place, implementation, kinds, predicted, measured, workspace
PREDICTED, MEASURED = 4, 5
QUANTILES = {"10 %": 0.1, "median": 0.5, "90 %": 0.9}


def spread_rows(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each model: sums, quantiles of measured over predicted, and what a solver needs to be told right.

    ``within`` is the share of the measured time in computations whose prediction is within a factor of two; ``told``
    the share of the alternative implementations for which it was told whether they are faster than the default one.
    """
    rows = []
    for name, entry in found.items():
        predicted, measured = (np.array([row[k] for row in entry["rows"]], dtype=float) for k in (PREDICTED, MEASURED))
        ratio = measured / predicted
        close = (ratio <= 2) & (ratio >= 0.5)
        rows.append(
            {
                "model": name,
                "size": entry["size"],
                "count": len(ratio),
                "predicted": predicted.sum(),
                "measured": measured.sum(),
                **{title: float(np.quantile(ratio, q)) for title, q in QUANTILES.items()},
                "within": float(measured[close].sum() / measured.sum()),
                "told": told(entry["rows"]),
            }
        )
    return rows


def told(rows: Rows) -> float | None:
    """The share of alternatives whose side of the default's time was predicted; None where there is no alternative.

    >>> told([["a", 0, "", [], 1.0, 1.0, 0], ["a", 1, "lean", ["lean"], 2.0, 3.0, 0], ["a", 2, "", [], 2.0, 0.5, 0]])
    0.5
    """
    right: list[bool] = []
    default: list[Any] = []
    for row in rows:
        if row[1] == 0:
            default = row
        else:
            right.append((row[PREDICTED] < default[PREDICTED]) == (row[MEASURED] < default[MEASURED]))
    return float(np.mean(right)) if right else None


def by_type_rows(found: Mapping[str, Mapping[str, Any]], most: int = 13) -> list[dict[str, Any]]:
    """The types of operations that take the most time in all models, in default implementations."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for entry in found.values():
        for row in entry["rows"]:
            if row[1] == 0:
                total = sums[type_of(row[0])]
                total[0] += 1
                total[1] += row[PREDICTED]
                total[2] += row[MEASURED]
    ordered = sorted(sums.items(), key=lambda pair: -pair[1][2])[:most]
    return [
        {"type": name, "count": int(count), "measured": measured, "ratio": measured / predicted}
        for name, (count, predicted, measured) in ordered
    ]


def type_of(operation: str) -> str:
    """What an operation computes, without the module that it is in.

    >>> type_of("blocks.0.norm2 batch_norm + relu"), type_of("add (3)")
    ('batch_norm + relu', 'add')
    """
    words = [word for word in operation.split(" ") if not (word.startswith("(") and word.endswith(")"))]
    return " ".join(words[1:] or words)
