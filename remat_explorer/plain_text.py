"""Names that come from outside, in texts that mean something else by some characters."""

from __future__ import annotations

import html


def one_line(name: str) -> str:
    r"""A name in which characters that end a line, are invisible or steer a terminal stand as Python shows them.

    >>> print(one_line("conv\n__import__('os')"))
    conv\n__import__('os')
    >>> print(one_line("größe \x1b[2J"))
    größe \x1b[2J
    """
    return name if name.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def printable(text: str) -> str:
    r"""A text of several lines for a terminal: all but the ends of its lines as `one_line` has it."""
    return "\n".join(map(one_line, text.split("\n")))


def in_figure(name: str) -> str:
    """A name for plotly, which reads its texts as simple HTML.

    >>> in_figure('<a href="x">conv</a> & relu')
    '&lt;a href="x"&gt;conv&lt;/a&gt; &amp; relu'
    """
    return html.escape(one_line(name), quote=False)
