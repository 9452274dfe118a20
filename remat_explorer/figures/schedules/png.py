"""Matrices as pictures: a cell is a pixel, and large matrices of few colours become small files."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np


def png_address(cells: np.ndarray, colours: Sequence[str]) -> str:
    """A PNG with one pixel per cell, as a ``data:`` address that stands in for a file.

    Args:
        cells: index of each cell's colour, of shape (rows, columns).
        colours: at most 256, as ``#rrggbb``.

    Source: Portable Network Graphics (W3C Recommendation), indexed colour.

    >>> png_address(np.array([[0, 1]]), ["#000000", "#ffffff"])[:30]
    'data:image/png;base64,iVBORw0K'
    """
    rows, columns = cells.shape
    pixels = np.zeros((rows, columns + 1), dtype=np.uint8)  # each row begins with its filter, 0 for none
    pixels[:, 1:] = cells
    chunks = (
        (b"IHDR", struct.pack(">2I5B", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in colours)),
        (b"IDAT", zlib.compress(pixels.tobytes(), 9)),
        (b"IEND", b""),
    )
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def shades(scale: Sequence[str], count: int) -> list[str]:
    """``count`` colours that run evenly through the colours of a scale.

    >>> shades(["#000000", "#ffffff"], 3)
    ['#000000', '#808080', '#ffffff']
    """
    stops = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in scale], dtype=float)
    at, places = np.linspace(0, 1, count), np.linspace(0, 1, len(scale))
    mixed = np.rint([np.interp(at, places, stops[:, channel]) for channel in range(3)]).astype(int)
    return ["#" + "".join(f"{level:02x}" for level in colour) for colour in mixed.T]
