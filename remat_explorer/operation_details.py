"""Where an operation comes from in the person's own code: for people to read, no part of what is scheduled."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SourceFile:
    """The lines of a file of the person's own that a capture has met, and those around them, as they were then."""

    name: str  # without its folder, or "notebook cell"
    path: str  # where it lies, or what Python calls the cell
    lines: tuple[tuple[int, str], ...] = ()  # number and text of each, ascending; none where the file could not be read

    def around(self, number: int, context: int) -> list[tuple[int, str]]:
        """The lines that are at most ``context`` from one, as far as they are known."""
        return [(n, text) for n, text in self.lines if abs(n - number) <= context]


@dataclass(frozen=True)
class AutogradNode:
    """The node of PyTorch's autograd that an operation belongs to.

    ``number`` is alike for a forward operation and the backward ones that are its gradient; -1 for none, as for sums of
    gradients. A forward operation is ``resident`` if it reads a parameter or an input that gets a gradient, a backward
    one if it reads any parameter, buffer, input or constant.
    """

    number: int
    place: int  # of the call in the order in which PyTorch runs a step
    resident: bool = False
    scalar: bool = False  # whether it has a number for a factor, which autograd saves as a tensor
    noise: int = 0  # bytes by which what autograd saves of dropout exceeds its mask; not 0 on a CPU


@dataclass(frozen=True)
class Details:
    """What the capture knows of an operation beyond what schedules depend on; empty where it is not known.

    Attributes:
        module: path of the module, "features.3".
        operator: what runs there, "conv2d + relu".
        shapes: shape of each output, in the order of its implementations' outputs: "8x64x32x32".
        line: file and line of the person's code, the file without its folder: "net.py:42".
        source: that file, as far as the capture has seen it; no file of a graph has it.
        calls: the calls that a plan's code makes for the default implementation; not in a graph file either.
        around: paths of the modules that it is within and that run once in a step, outer ones first; no file has them.
        autograd: where PyTorch's own backward pass has it; not in a graph file either.
        random: whether it draws random numbers, by PyTorch's own tags; known where ``calls`` are.

    >>> Details(operator="conv2d", shapes=(shape_text((8, 64, 32, 32)),), line="net.py:42")
    Details(module='', operator='conv2d', shapes=('8x64x32x32',), line='net.py:42')
    """

    module: str = ""
    operator: str = ""
    shapes: tuple[str, ...] = ()
    line: str = ""
    source: SourceFile | None = field(default=None, compare=False, repr=False)
    calls: tuple[str, ...] = field(default=(), compare=False, repr=False)
    around: tuple[str, ...] = field(default=(), compare=False, repr=False)
    autograd: AutogradNode | None = field(default=None, compare=False, repr=False)
    random: bool = field(default=False, compare=False, repr=False)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as people read it.

    >>> shape_text((8, 64)), shape_text(())
    ('8x64', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"
