"""Work that is done once for each object, however often it is asked for, and forgotten with the object."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Key = TypeVar("Key")
Answer = TypeVar("Answer")


def memoize_by_identity(make: Callable[[Key], Answer]) -> Callable[[Key], Answer]:
    """A function of one object that remembers its answer for as long as the object lives.

    Objects are told apart by identity: comparing two plans would cost more than the work that is saved. The answer
    must not refer to the object, which would then live forever. Any thread may call the function; two that ask for the
    same object at the same time both do the work.
    """
    answers: dict[int, tuple[weakref.ref[Any], Answer]] = {}
    forget = _forget  # by the function itself: at the end of the process the module's names go before the objects

    @functools.wraps(make)
    def remembered(key: Key) -> Answer:
        number = id(key)
        entry = answers.get(number)
        if entry is not None and entry[0]() is key:
            return entry[1]
        answer = make(key)
        answers[number] = (weakref.ref(key, lambda reference: forget(answers, number, reference)), answer)
        return answer

    return remembered


def _forget(answers: dict[int, tuple[weakref.ref[Any], Any]], number: int, reference: weakref.ref[Any]) -> None:
    if number in answers and answers[number][0] is reference:  # another object may have its number by now
        del answers[number]
