"""Bytes, seconds and ratios as people write and read them. Inside, bytes are int and seconds are float."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from remat_explorer.errors import QuantityError, shown

MOST_BYTES = 2**53  # 8 PiB: whole numbers up to there are exact as floating-point numbers, in which solvers calculate
SMALLEST = "smallest"  # as a budget: the smallest one with a known schedule
MOST_COST = 1e300  # above it sums and products of costs could overflow
BYTE_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_QUANTITY = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*|%|%\s+of\s+the\s+way)")
_RATE = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*/\s*s")
_HINT = 'write bytes as a number, or with a unit: 1073741824, "1.5 GiB", "800 MB"'


def parse_bytes(text: str | int | float) -> int:
    """Number of bytes of ``text``, rounded down.

    Binary units (KiB, MiB, GiB, TiB) are powers of 1024, decimal ones (KB, MB, GB, TB) powers of 1000.

    Raises:
        QuantityError: if ``text`` is not a quantity of bytes, or more than `MOST_BYTES`.

    >>> parse_bytes("1.5 GiB"), parse_bytes("2 MB"), parse_bytes(4)
    (1610612736, 2000000, 4)
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise QuantityError(f"{shown(text)} is not a number of bytes; {_HINT}")
    if not isinstance(text, str):
        if not text >= 0:  # nor is what is not a number
            raise QuantityError(f"{shown(text)} is not a number of bytes; {_HINT}")
        return _whole_bytes(text, text)
    match = _QUANTITY.fullmatch(text.strip())
    if not match or match[2].upper() not in BYTE_UNITS:
        raise QuantityError(f"{shown(text)} is not a number of bytes; {_HINT}")
    return _whole_bytes(float(match[1]) * BYTE_UNITS[match[2].upper()], text)


def parse_rate(text: str) -> float:
    """Bytes per second of ``text``, which may be less than one.

    Raises:
        QuantityError: if ``text`` is none.

    >>> parse_rate("25 GB/s"), parse_rate("0.5 B/s")
    (25000000000.0, 0.5)
    """
    found = _RATE.fullmatch(text.strip())
    if found is None or found[2].upper() not in BYTE_UNITS:
        raise QuantityError(f'{shown(text)} is no bandwidth; write "25 GB/s"')
    rate = float(found[1]) * BYTE_UNITS[found[2].upper()]
    if not rate <= MOST_BYTES:
        raise QuantityError(f"{shown(text)} is more than {format_bytes(MOST_BYTES)} per second; give less")
    return rate


def format_rate(rate: float) -> str:
    """Bytes per second as `parse_rate` reads them.

    >>> format_rate(25e9), format_rate(2.5e6), format_rate(0.5)
    ('25 GB/s', '2.5 MB/s', '0.5 B/s')
    """
    if math.isinf(rate):
        return "∞ GB/s"
    size, unit = next(((10**p, u) for p, u in ((9, "GB"), (6, "MB"), (3, "KB")) if rate >= 10**p), (1, "B"))
    return f"{rate / size:.4g} {unit}/s"


def parse_budget(text: str | int | float, checkpoint_all_peak: int, smallest: Callable[[], int] | None = None) -> int:
    """Budget in bytes: bytes, "60%" of the checkpoint-all peak (parameters included), or "40% of the way" to that peak.

    The way begins at the smallest budget with a known schedule, which ``smallest`` finds; that may take seconds.

    Raises:
        QuantityError: if ``text`` is none of these.

    >>> parse_budget("60%", 1000), parse_budget("1 KiB", 1000), parse_budget("40% of the way", 1000, lambda: 500)
    (600, 1024, 700)
    """
    if isinstance(text, str) and smallest is not None and text.strip().lower() == SMALLEST:
        return smallest()
    if isinstance(text, str) and (match := _QUANTITY.fullmatch(text.strip())) and match[2].startswith("%"):
        share = float(match[1]) / 100
        if match[2] == "%":
            return _whole_bytes(share * checkpoint_all_peak, text)
        if smallest is not None:
            least = smallest()
            return _whole_bytes(least + share * (checkpoint_all_peak - least), text)
    try:
        return parse_bytes(text)
    except QuantityError as error:
        hint = f'{error}; or as a share of the checkpoint-all peak: "60%"'
        if smallest is not None:
            hint += f', or "{SMALLEST}", the smallest budget with a known schedule, or "40% of the way" from it'
        raise QuantityError(hint) from None


def begins_at_smallest(budget: object) -> bool:
    """Whether a budget is "smallest", or a share of the way from there.

    >>> begins_at_smallest(" Smallest"), begins_at_smallest("40% of the way"), begins_at_smallest("40%")
    (True, True, False)
    """
    if not isinstance(budget, str):
        return False
    match = _QUANTITY.fullmatch(budget.strip())
    return budget.strip().lower() == SMALLEST or (match is not None and match[2].endswith("way"))


def _whole_bytes(number: int | float, given: object) -> int:
    """``number`` rounded down, unless it is so large that it can only be a mistake."""
    if not number <= MOST_BYTES:  # nor is what is not a number, as infinitely much of nothing
        raise QuantityError(
            f"{shown(given)} is more than {format_bytes(MOST_BYTES)}, the largest supported number; give less"
        )
    return int(number)


def format_bytes(count: float) -> str:
    """Bytes as people read them, three significant digits.

    >>> format_bytes(1610612736), format_bytes(999), format_bytes(-2048)
    ('1.50 GiB', '999 B', '-2.00 KiB')
    """
    if count < 0:
        return "-" + format_bytes(-count)
    if count < 1000:
        return f"{count:.0f} B"
    unit = min(int(math.log(count, 1024)), 4)
    if count / 1024**unit >= 999.5 and unit < 4:
        unit += 1
    scaled = count / 1024**unit
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def exact_bytes(count: int) -> str:
    """Bytes as people read them, with all digits where the first form leaves some out.

    >>> exact_bytes(999), exact_bytes(1 << 20)
    ('999 B', '1.00 MiB (1048576 bytes)')
    """
    return format_bytes(count) if abs(count) < 1000 else f"{format_bytes(count)} ({count} bytes)"


def format_seconds(seconds: float) -> str:
    """A duration as people read it.

    >>> format_seconds(0.0042), format_seconds(3.25), format_seconds(754), format_seconds(math.inf)
    ('4.2 ms', '3.2 s', '12 min 34 s', '∞ s')

    What would round up to the next unit is written in it.

    >>> format_seconds(0.0009996), format_seconds(0.9996), format_seconds(119.97)
    ('1 ms', '1.0 s', '2 min 0 s')
    """
    if math.isinf(seconds):
        return "∞ s"
    if seconds < 999.5e-6:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 999.5e-3:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 119.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def format_overhead(ratio: float) -> str:
    """Cost over checkpoint-all cost as a signed percentage.

    >>> format_overhead(1.042), format_overhead(1.0), format_overhead(1 - 1e-9), format_overhead(1 + 11.95 / 100)
    ('+4.2 %', '+0.0 %', '+0.0 %', '+12.0 %')
    """
    percent = (ratio - 1) * 100 + 1e-9  # what is half in decimals is rounded up
    return f"{round(percent, 1) + 0.0:+.1f} %"  # zero has no sign


def format_share(ratio: float) -> str:
    """A share as a percentage, with more digits the smaller it is.

    >>> format_share(0.0004), format_share(0.25), format_share(1e-6), format_share(1e-16)
    ('0.040 %', '25.0 %', '<0.001 %', '0 %')
    """
    percent = 100 * ratio
    if abs(percent) < 1e-7:  # below what a solver's tolerances can tell from nothing
        return "0 %"
    if abs(percent) < 0.001:
        return "<0.001 %"
    return f"{percent:.1f} %" if abs(percent) >= 1 else f"{percent:.3f} %"
