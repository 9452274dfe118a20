"""How numbers are written on the command line; argparse says which option a message is about."""

from __future__ import annotations

import argparse
import math

from remat_explorer.errors import shown


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 2**31 - 1)


def few(text: str) -> int:
    """A whole number from 1 to 1024: of threads, processes or repeats."""
    return _whole(text, 1024)


def port(text: str) -> int:
    """A number of a TCP port."""
    return _whole(text, 65535)


def seconds(text: str) -> float:
    """A time of at least 0; "inf" is one."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:  # nor is what is not a number
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of seconds")
    return number


def minutes(text: str) -> float:
    """A time of at least 0, and not for ever."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of minutes; 0 is for never")
    return number


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[-4000:]) < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number of at least 1")
    if len(text.lstrip("0")) > len(str(most)) or int(text[-4000:]) > most:
        raise argparse.ArgumentTypeError(f"{shown(text)} is more than {most}")
    return int(text[-4000:])


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
        raise argparse.ArgumentTypeError(f"{shown(text)} is no overhead; write 10% or 0.1 for a tenth")
    return share
