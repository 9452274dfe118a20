"""A convolution as cuDNN is asked for it, and one of the execution plans with which it can answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from remat_explorer.capture.convolution_arguments import Part
from remat_explorer.documents import quote
from remat_explorer.errors import RematError

Sizes = tuple[int, ...]
Knobs = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Problem:
    """One part of a convolution: result, input gradient or weight gradient.

    Attributes:
        part: which one it is.
        sizes: of source, weight and result; a gradient has the size of what it belongs to.
        strides: of the same, in entries.
        setting: stride, padding and dilation. Groups show in the sizes.
        dtype: of all tensors: "float32", "float16" or "bfloat16".
        tf32: whether factors in float32 may be rounded to 10 bits.
    """

    part: Part
    sizes: tuple[Sizes, Sizes, Sizes]
    strides: tuple[Sizes, Sizes, Sizes]
    setting: tuple[Sizes, Sizes, Sizes]
    dtype: str
    tf32: bool

    @property
    def reads(self) -> tuple[int, int]:
        """Which of source, weight and result it reads."""
        return {"forward": (0, 1), "input": (2, 1), "weight": (0, 2)}[self.part]  # type: ignore[return-value]

    @property
    def makes(self) -> int:
        """Which of source, weight and result it makes."""
        return {"forward": 2, "input": 0, "weight": 1}[self.part]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class ExecutionPlan:
    """What cuDNN calls an engine with its knobs; both together find it again.

    Attributes:
        engine: its number.
        knobs: names and values.
        name: as cuDNN writes it.
        workspace: bytes that it asks for.
        seconds: measured.

    Raises:
        RematError: if a number is impossible.
    """

    engine: int
    knobs: Knobs
    name: str
    workspace: int
    seconds: float

    def __post_init__(self) -> None:
        whole = (self.engine, self.workspace, *(value for _, value in self.knobs))
        if any(isinstance(number, bool) or not isinstance(number, int) for number in whole) or self.workspace < 0:
            raise RematError(f"an execution plan with {quote(whole)}; expected integers, and bytes of at least 0")
        if not isinstance(self.seconds, float) or not self.seconds > 0:
            raise RematError(f"an execution plan of {quote(self.seconds)}; expected seconds above 0")

    @staticmethod
    def of(document: Mapping[str, Any]) -> ExecutionPlan:
        """The plan of a document that `dataclasses.asdict` made.

        Raises:
            RematError: if it is none.

        >>> plan = ExecutionPlan(1, (("TILE_M", 2),), "eng1_k1=2", 0, 0.5)
        >>> ExecutionPlan.of(asdict(plan)) == plan
        True
        """
        try:
            knobs = tuple((str(name), value) for name, value in document["knobs"])
            rest = (document[key] for key in ("workspace", "seconds"))
            return ExecutionPlan(document["engine"], knobs, str(document["name"]), *rest)
        except (KeyError, TypeError, ValueError) as error:
            raise RematError(f"no execution plan: {quote(document)} ({error})") from None


def best_of(plans: list[ExecutionPlan], most: int) -> list[ExecutionPlan]:
    """The plans that no other one beats in both time and workspace, the fastest first; the leanest is among them.

    >>> numbers = {"a": (9, 1.0), "b": (5, 2.0), "c": (6, 3.0), "d": (0, 4.0)}
    >>> plans = [ExecutionPlan(0, (), name, *workspace_and_time) for name, workspace_and_time in numbers.items()]
    >>> [plan.name for plan in best_of(plans, 3)], [plan.name for plan in best_of(plans, 2)]
    (['a', 'b', 'd'], ['a', 'd'])
    """
    kept: list[ExecutionPlan] = []
    for plan in sorted(plans, key=lambda plan: (plan.seconds, plan.workspace, plan.engine, plan.knobs)):
        if not kept or plan.workspace < kept[-1].workspace:
            kept.append(plan)
    if len(kept) <= most:
        return kept
    if most <= 1:
        return kept[-1:] if most == 1 else []
    return [kept[(len(kept) - 1) * place // (most - 1)] for place in range(most)]
