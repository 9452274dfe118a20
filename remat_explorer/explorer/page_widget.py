"""The widgets of the explorer's page: modules that hear the kernel even where the page was slow to open."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets as t

HEARING = Path(__file__).parent / "hearing.js"
OFFERS = "export default "


def hearing(module: str) -> str:
    """A module of a widget with what lets it hear the kernel where anywidget has given up.

    Args:
        module: JavaScript with one default export; its widget needs the trait ``probed``.

    Raises:
        ValueError: if there is none, or more than one.

    >>> "const offered = { render };" in hearing("export default { render };")
    True
    """
    before, *after = module.split(OFFERS)
    if len(after) != 1:
        raise ValueError(f"a widget's module has one default export, and this one has {len(after)}: {module[:60]!r}")
    return f"{before}const offered = {after[0]}\n{HEARING.read_text(encoding='utf-8')}"


class PageWidget(anywidget.AnyWidget):
    """What the explorer's own widgets are: `_esm` is a text or a file.

    Attributes:
        module: the text of `_esm` without `hearing.js`, for a page that has no kernel.
        probed: changed by the page, by which it finds its model.
    """

    module: ClassVar[str]
    probed = t.Bool(False).tag(sync=True)

    def __init_subclass__(cls, **named: Any) -> None:
        given = cls.__dict__.get("_esm")
        if isinstance(given, str | Path):  # of an instance, anywidget makes it a trait in a class of its own
            cls.module = given.read_text(encoding="utf-8") if isinstance(given, Path) else given
            cls._esm = hearing(cls.module)
        super().__init_subclass__(**named)
