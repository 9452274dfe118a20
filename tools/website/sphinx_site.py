"""Sphinx with the settings of the site: Furo, MyST, the API from docstrings, and formulas as MathML; no other host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

SETTINGS: dict[str, Any] = {
    "project": "remat_explorer",
    "copyright": "the authors of remat_explorer, Apache-2.0",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "tools.website.sphinx_site"],
    "root_doc": "index",
    "html_theme": "furo",
    "html_title": "remat_explorer",
    "html_static_path": ["_static"],
    "html_css_files": ["site.css", "slides.css"],
    "html_js_files": ["figures.js", "keyboard.js", "slides.js"],
    "html_math_renderer": "mathml",
    "html_show_sphinx": False,
    "html_copy_source": False,
    "html_favicon": None,
    "myst_enable_extensions": ["dollarmath", "amsmath"],
    "myst_heading_anchors": 4,
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "autodoc_typehints": "signature",
    "autodoc_member_order": "bysource",
    "autodoc_default_options": {"exclude-members": "__init__"},
    "napoleon_google_docstring": True,
    "default_role": "code",
    "suppress_warnings": ["myst.header"],
    "highlight_language": "none",
}
LONG = 40  # characters of a table's cell, from which on it has a least width


def make_html(source: Path, target: Path) -> None:
    """Build the pages.

    Raises:
        sphinx.errors.SphinxError: for a warning, such as a link that leads nowhere, or an error.
    """
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            source, None, target, target.parent / "doctrees", "html", SETTINGS, status=None, warningiserror=True
        )
        app.build()
        if app.statuscode:
            raise SphinxError("the site was built with warnings")


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entry: formulas as MathML, which browsers draw by themselves, and anchors written as HTML."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("doctree-read", _know_anchors)
    app.connect("doctree-read", _mark_long_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _know_anchors(app: Any, document: Any) -> None:
    """Let links lead to anchors that a page has as HTML, as the glossary's table does, not to headings alone."""
    from docutils import nodes

    known = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for node in document.findall(nodes.raw):
        for name in re.findall(r'<a id="([\w-]+)">', node.astext()):
            known.setdefault(name, (node.line or 0, name, ""))


def _mark_long_cells(app: Any, document: Any) -> None:
    from docutils import nodes

    for cell in document.findall(nodes.entry):
        if len(cell.astext()) > LONG:
            cell["classes"].append("long")


def _inline(writer: Any, node: Any) -> None:
    from docutils import nodes

    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: Any) -> None:
    from docutils import nodes

    writer.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
