"""Work done once for each object, and forgotten with it."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from remat_explorer.explanations import lives_of
from remat_explorer.instances import linear
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Plan


class Thing:
    """Something that can be referred to weakly, and equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_equal_objects_are_told_apart():
    made = []
    number = memoize_by_identity(lambda thing: made.append(thing is not None) or len(made))
    first, second = Thing(), Thing()
    assert (number(first), number(second), number(first)) == (1, 2, 1)


def test_an_object_that_takes_the_place_of_another_gets_an_answer_of_its_own():
    asked = []
    number = memoize_by_identity(lambda thing: asked.append(1) or len(asked))
    for expected in range(1, 50):
        assert number(Thing()) == expected  # each dies at once, and the next may have its id


def test_an_object_may_outlive_the_names_of_the_module(monkeypatch: pytest.MonkeyPatch):
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    number = memoize_by_identity(lambda thing: 1)
    thing = Thing()
    number(thing)
    monkeypatch.setattr("remat_explorer.memoize._forget", None)  # as at the end of the process
    del thing
    gc.collect()
    assert said == []


def test_a_plan_does_not_outlive_those_who_need_it():
    plan = Plan.from_sequence(linear(2), [(k, k, 1) for k in range(5)])
    lives_of(plan)
    gone = weakref.ref(plan)
    del plan
    gc.collect()
    assert gone() is None
