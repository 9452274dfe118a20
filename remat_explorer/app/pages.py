"""Pages of words that the server answers with where it cannot show the explorer."""

from __future__ import annotations

from html import escape

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 40em; margin: 4em auto; padding: 0 1em; color-scheme: light dark }}
</style></head>
<body><h1>{title}</h1>{paragraphs}</body></html>
"""


def page(title: str, *paragraphs: str) -> str:
    """A page of a title and paragraphs.

    >>> "<p>1 &lt; 2</p>" in page("Full", "1 < 2")
    True
    """
    return PAGE.format(title=escape(title), paragraphs="".join(f"<p>{escape(text)}</p>" for text in paragraphs))
