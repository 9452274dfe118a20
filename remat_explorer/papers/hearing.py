"""What a running item says, and how it asks whether to go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remat_explorer.papers.item import Tell


def heard(progress: Tell, where: str) -> Callable[[Any], None]:
    """A listener for a solver's reports, which passes on what it is doing and for which instance.

    Args:
        progress: hears sentences.
        where: the instance, in words.

    >>> from remat_explorer.solvers import Progress
    >>> heard(print, "VGG16 within 60%")(Progress(0.1, "planning"))
    VGG16 within 60%: planning
    """

    def listen(report: Any) -> None:
        progress(f"{where}: {report.doing}")

    return listen


def joined(names: list[str]) -> str:
    """Names as a list in a sentence.

    >>> joined(["a", "b", "c"]), joined(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
