"""What can be sent to the host and fetched back: bandwidths, latency, host memory; and links with published rates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from remat_explorer.documents import require_keys
from remat_explorer.entry_checks import require_bytes, require_number
from remat_explorer.errors import QuantityError, SolutionError, shown
from remat_explorer.quantities import MOST_COST, format_bytes, format_rate, format_seconds, parse_rate


def _pcie(gigatransfers: float) -> float:
    """Bytes per second, each way, of 16 lanes with the 128b/130b encoding."""
    return gigatransfers * 1e9 * 16 * 128 / 130 / 8


LINKS: dict[str, tuple[float, float, bool, str]] = {
    "pcie3": (_pcie(8), _pcie(8), True, "PCI Express Base Specification 3.0: 8 GT/s, 16 lanes, 128b/130b"),
    "pcie4": (_pcie(16), _pcie(16), True, "PCI Express Base Specification 4.0: 16 GT/s, 16 lanes, 128b/130b"),
    "pcie5": (_pcie(32), _pcie(32), True, "PCI Express Base Specification 5.0: 32 GT/s, 16 lanes, 128b/130b"),
    "nvlink-c2c": (450e9, 450e9, True, "NVIDIA, Grace Hopper Superchip architecture: 900 GB/s in both directions"),
    "nvme": (6.9e9, 7.45e9, False, "Samsung, SSD 990 PRO data sheet: sequential write 6,900, read 7,450 MB/s"),
}
"""Bytes per second out and back, whether both ways work at once, and where that is published: peaks, all of them."""

_RATE = re.compile(r"(.*/\s*s)(?:\s+(out|back|out and back))?", re.IGNORECASE)
_LATENCY = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(s|ms|us|µs)\s+a copy", re.IGNORECASE)
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6}
_ONE_WAY = "one way at a time"


@dataclass(frozen=True)
class Transfers:
    """The third choice of a problem: what a copy to the host and back takes.

    A copy of M bytes takes ``latency + M / out``, or ``latency + M / back``, in the unit of the graph's costs, seconds
    where it was captured. With a bandwidth of 0 nothing can be sent, and what remains is Checkmate's problem.

    Attributes:
        out: bytes per second from the device to the host; may be infinite.
        back: bytes per second from the host to the device; may be infinite.
        latency: seconds that each copy takes beside that.
        host_bytes: bytes of copies that the host has room for, or None for any number.
        duplex: whether a copy out and a copy back may go on at the same time; a disk has one engine for both.

    Raises:
        QuantityError: if a number is negative, or none.

    >>> Transfers(out=25e9, back=25e9).out_seconds(250_000_000)
    0.01
    """

    out: float
    back: float
    latency: float = 0.0
    host_bytes: int | None = None
    duplex: bool = True

    def __post_init__(self) -> None:
        for name, most in (("out", math.inf), ("back", math.inf), ("latency", MOST_COST)):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= most:
                raise QuantityError(f"{name}={shown(given)} is not a number of at least 0")
        if not isinstance(self.duplex, bool):
            raise QuantityError(f"duplex={shown(self.duplex)} is neither True nor False")
        if self.host_bytes is not None:
            require_bytes(self.host_bytes, "host_bytes", QuantityError)

    @staticmethod
    def of(given: str | float | Transfers, host_bytes: int | None = None) -> Transfers:
        """The transfers that a person names: one of `LINKS`, a rate for both ways, or what `describe` writes.

        Parts of a text stand between commas: "25 GB/s", or "25 GB/s out" and "20 GB/s back"; "10 us a copy", the
        latency; "one way at a time", for an engine that copies both ways.

        Raises:
            QuantityError: if it is none of these.

        >>> Transfers.of("25 GB/s")
        Transfers(out=25000000000.0, back=25000000000.0, latency=0.0, host_bytes=None, duplex=True)
        >>> Transfers.of("25 GB/s out, 20 GB/s back, 10 us a copy, one way at a time")
        Transfers(out=25000000000.0, back=20000000000.0, latency=1e-05, host_bytes=None, duplex=False)
        >>> round(Transfers.of("pcie4").out / 1e9, 1), Transfers.of("nvme").duplex
        (31.5, False)
        >>> Transfers.of("fast")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        remat_explorer.errors.QuantityError: 'fast' is no bandwidth; write "25 GB/s", "25 GB/s out, 20 GB/s back", or...
        """
        if isinstance(given, Transfers):
            return given
        if isinstance(given, str):
            return _parsed(given, host_bytes)
        return Transfers(given, given, host_bytes=host_bytes)

    @property
    def possible(self) -> bool:
        """Whether anything can be sent and fetched at all."""
        return self.out > 0 and self.back > 0 and (self.host_bytes is None or self.host_bytes > 0)

    def is_at_least(self, other: Transfers) -> bool:
        """Whether whatever is possible with other transfers is so with these, and takes no longer.

        >>> Transfers(2.0, 1.0).is_at_least(Transfers(1.0, 1.0, host_bytes=5))
        True
        >>> Transfers(2.0, 1.0, latency=0.5).is_at_least(Transfers(1.0, 1.0))
        False
        """
        room, least = (math.inf if one.host_bytes is None else one.host_bytes for one in (self, other))
        fast = self.out >= other.out and self.back >= other.back and self.latency <= other.latency
        return fast and room >= least and self.duplex >= other.duplex

    def out_seconds(self, size: int) -> float:
        """How long sending ``size`` bytes takes."""
        return self.latency + _quotient(size, self.out)

    def back_seconds(self, size: int) -> float:
        """How long fetching ``size`` bytes takes."""
        return self.latency + _quotient(size, self.back)

    def describe(self) -> str:
        """In words.

        >>> Transfers(25e9, 25e9, 1e-5).describe()
        '25 GB/s out and back, 10 µs a copy'
        """
        ways = [f"{format_rate(rate)} {way}" for rate, way in ((self.out, "out"), (self.back, "back"))]
        text = f"{format_rate(self.out)} out and back" if self.out == self.back else ", ".join(ways)
        text += f", {format_seconds(self.latency)} a copy" if self.latency else ""
        text += f", {format_bytes(self.host_bytes)} of host memory" if self.host_bytes is not None else ""
        return text + ("" if self.duplex else f", {_ONE_WAY}")

    def to_document(self) -> dict[str, Any]:
        """As a JSON object; an infinite bandwidth is null."""
        out, back = (None if math.isinf(rate) else rate for rate in (self.out, self.back))
        rest = {"latency": self.latency, "host_bytes": self.host_bytes, "duplex": self.duplex}
        return {"out": out, "back": back} | rest

    @staticmethod
    def from_document(entry: Any) -> Transfers:
        """The transfers of a parsed file.

        Raises:
            SolutionError: naming what is missing, unknown or no number.
        """
        require_keys(entry, ("out", "back", "latency", "host_bytes", "duplex"), "the entry 'transfers'", SolutionError)
        rates = {
            name: math.inf if entry[name] is None else require_number(entry[name], f"the entry {name!r}", SolutionError)
            for name in ("out", "back")
        }
        try:
            return Transfers(**rates, **{name: entry[name] for name in ("latency", "host_bytes", "duplex")})
        except QuantityError as error:
            raise SolutionError(f"the entry 'transfers' is refused: {error}") from None


def _quotient(size: int, rate: float) -> float:
    return size / rate if rate > 0 else math.inf


def _parsed(text: str, host_bytes: int | None) -> Transfers:
    """The transfers that a text names."""
    rates: dict[str, float] = {}
    latency, duplex = 0.0, True
    for part in map(str.strip, text.split(",")):
        if part.lower() in LINKS:
            rates["out"], rates["back"], duplex = LINKS[part.lower()][:3]
        elif part.lower() == _ONE_WAY:
            duplex = False
        elif found := _LATENCY.fullmatch(part):
            latency = float(found[1]) / _PER_SECOND[found[2].lower()]
        else:
            rates |= dict.fromkeys(*_rate(part, text))
    missing = [way for way in ("out", "back") if way not in rates]
    if missing:
        raise QuantityError(f"{shown(text)} says no bandwidth of the way {' and '.join(missing)}; {_hint()}")
    return Transfers(**rates, latency=latency, host_bytes=host_bytes, duplex=duplex)


def _rate(part: str, text: str) -> tuple[tuple[str, ...], float]:
    """The ways that a part of a text is about, and their bytes per second."""
    try:
        if (match := _RATE.fullmatch(part)) is None:
            raise QuantityError("")
        rate = parse_rate(match[1])
    except QuantityError:
        quoted = shown(text) if part == text.strip() else f"{shown(part)} of {shown(text)}"
        raise QuantityError(f"{quoted} is no bandwidth; {_hint()}") from None
    way = (match[2] or "out and back").lower()
    return tuple(way.split(" and ")), rate


def _hint() -> str:
    return f'write "25 GB/s", "25 GB/s out, 20 GB/s back", or one of: {", ".join(sorted(LINKS))}'
