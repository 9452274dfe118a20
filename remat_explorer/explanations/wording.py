"""Sentences with names in them that can be followed: an operation, a value, a stage."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.graph import Graph, cost_unit
from remat_explorer.quantities import format_seconds


@dataclass(frozen=True)
class Mention:
    """A name in a sentence, and what to look at when somebody follows it; None leaves the selection as it is."""

    text: str
    value: int | None = None
    stage: int | None = None


Words = tuple[str | Mention, ...]


def plain(words: Words) -> str:
    """A sentence without its links.

    >>> plain(("kept for ", Mention("relu", value=3), "."))
    'kept for relu.'
    """
    return "".join(word if isinstance(word, str) else word.text for word in words)


def mention_operation(graph: Graph, operation: int, stage: int | None = None) -> Mention:
    """The name of an operation; it leads to its first output, in the stage where it runs."""
    outputs = graph.outputs(operation)
    return Mention(graph.operations[operation].name, outputs[0] if outputs else None, stage)


def mention_stage(stage: int, here: int | None = None) -> Mention:
    """The number of a stage, or "this stage" where it is the one looked at."""
    return Mention("this stage" if stage == here else f"stage {stage}", stage=stage)


def count(number: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "operation"), count(3, "operation")
    ('1 operation', '3 operations')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: list[str], most: int = 3) -> str:
    """The first of some names, and how many more there are.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def cost_text(graph: Graph, cost: float) -> str:
    """A cost as people read it: seconds, or the whole units of the teaching graphs.

    >>> from remat_explorer.instances import linear
    >>> cost_text(linear(3), 2.0)
    'cost 2'
    """
    return f"cost {cost:,.0f}" if not cost_unit(graph) else format_seconds(cost)


def persistent_kind(name: str) -> str:
    """What a value is that stays to the end, by its name.

    >>> persistent_kind("stem.0.weight.grad"), persistent_kind("norm.running_mean (new)")
    ("a parameter's gradient", "a buffer's new content")
    """
    if name.endswith(".grad"):
        return "a parameter's gradient"
    return "a buffer's new content" if name.endswith("(new)") else "a result of the training step"
