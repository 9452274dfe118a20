"""How numbers are written on the command line; argparse says which option a message is about."""

from __future__ import annotations

import argparse
import math


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """A time of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:  # nor is what is not a number
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def overhead(text: str) -> float:
    """A share of at least 0, or so many percent.

    >>> overhead("10%"), overhead("0.1")
    (0.1, 0.1)
    """
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if rest or not 0 <= share < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no overhead; write 10% or 0.1 for a tenth")
    return share
