"""Where a difference from plain PyTorch begins, as people are told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

_ADVICE = "; torch.use_deterministic_algorithms(True) chooses kernels that repeat theirs, where there are such"


@dataclass(frozen=True)
class Beginning:
    """The first operation, in the plan's order, that gives what plain PyTorch does not have, or why none is named.

    It reads only what plain PyTorch has, too, and what it gives leads to a result that differs.

    Attributes:
        operation: its number in the graph, or None if none is named.
        name, phase, module, operator, line: of the operation, as the graph has them; "" where not known.
        implementation: the name of the one that ran, "" for the default.
        tolerance: largest error that this implementation may have, relative to the largest entry; 0 if it is exact.
        dtype: of what it gives: "bfloat16".
        statement: index in the plan, or None.
        again: whether the operation had run before, and gave then what plain PyTorch has.
        others: how many more operations begin a difference of their own.
        repeats: whether plain PyTorch, run once more, gave its own results again; None if it did not run.
        reason: why no operation is named, else "".
    """

    operation: int | None = None
    name: str = ""
    phase: str = ""
    module: str = ""
    operator: str = ""
    line: str = ""
    implementation: str = ""
    tolerance: float = 0.0
    dtype: str = ""
    statement: int | None = None
    again: bool = False
    others: int = 0
    repeats: bool | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """A sentence without its full stop, or two.

        >>> Beginning(3, "1 mul", "backward", "1", "mul", "net.py:42", repeats=True).text
        "the difference begins at '1 mul' (backward, net.py:42)"
        >>> Beginning(repeats=False, reason="no operation gives what plain PyTorch does not have").text
        'plain PyTorch gives other results when it runs again; no operation gives what plain PyTorch does not have; \
torch.use_deterministic_algorithms(True) chooses kernels that repeat theirs, where there are such'
        """
        varies = "plain PyTorch gives other results when it runs again; " if self.repeats is False else ""
        if self.operation is None:
            return varies + self.reason + (_ADVICE if varies else "")
        where = ", ".join(filter(None, (self.phase, *self._origin, self.line)))
        named = f"{self.name!r} ({where})"
        begins = f"where {named} is computed again (statement {self.statement})" if self.again else f"at {named}"
        parts = [f"the difference begins {begins}"]
        if self.implementation:
            allowed = f", which may differ by {self.tolerance:.0e} of the largest entry" if self.tolerance else ""
            parts.append(f"it ran as {self.implementation!r}{allowed}")
        if self.others:
            are = "1 more operation begins" if self.others == 1 else f"{self.others:,} more operations begin"
            parts.append(f"{are} a difference of its own" if self.others == 1 else f"{are} differences of their own")
        return varies + "; ".join(parts) + (_ADVICE if varies else "")

    @property
    def _origin(self) -> tuple[str, ...]:
        """Operators and dtype, as far as the name does not say them and they tell more."""
        operator = "" if self.operator in self.name else self.operator
        return operator, self.dtype if self.dtype not in ("", "float32") else ""

    def to_document(self) -> dict[str, Any]:
        """As a JSON object, with the sentence."""
        return {**dataclasses.asdict(self), "text": self.text}
