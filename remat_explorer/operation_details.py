"""Where an operation comes from in the person's own code: for people to read, no part of what is scheduled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Details:
    """What the capture knows of an operation beyond what schedules depend on; empty where it is not known.

    Attributes:
        module: path of the module, "features.3".
        operator: what runs there, "conv2d + relu".
        shapes: shape of each output, in the order of its implementations' outputs: "8x64x32x32".
        line: file and line of the person's code, the file without its folder: "net.py:42".

    >>> Details(operator="conv2d", shapes=(shape_text((8, 64, 32, 32)),), line="net.py:42")
    Details(module='', operator='conv2d', shapes=('8x64x32x32',), line='net.py:42')
    """

    module: str = ""
    operator: str = ""
    shapes: tuple[str, ...] = ()
    line: str = ""


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as people read it.

    >>> shape_text((8, 64)), shape_text(())
    ('8x64', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"
