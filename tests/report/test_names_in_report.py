"""Whatever a graph calls its parts, a report shows it, and none of it is markup, a script or another file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import remat_explorer as rx
from tests.hostile_names import HARM, hostile


def digest(script: str) -> str:
    """As it stands in a Content-Security-Policy."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


class Elements(HTMLParser):
    """Collects the elements of a page, with their attributes, and the scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script" and not dict(attrs).get("type")
        if self._script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data


def test_no_name_becomes_an_element_and_only_the_pages_own_scripts_are_allowed(tmp_path: Path) -> None:
    solution = rx.solve(hostile(rx.linear(8)), budget=4)
    page = rx.report(solution, tmp_path / "report.html").read_text(encoding="utf-8")
    found = Elements(page)
    assert {tag for tag, _ in found.tags} & {"img", "iframe", "object", "embed", "form"} == set()
    links = [str(attributes.get("href")) for tag, attributes in found.tags if tag == "a"]
    assert [link for link in links if not link.startswith("#")] == []
    assert not [key for _, attributes in found.tags for key in attributes if key.startswith("on")]
    policies = [attributes["content"] for tag, attributes in found.tags if "http-equiv" in attributes]
    allowed = re.findall(r"'sha256-([^']+)'", str(policies))
    assert len(found.scripts) == 1
    assert allowed[0] == digest(found.scripts[0])
    packed = re.findall(r'<script type="application/gzip"[^>]*>([^<]*)</script>', page)
    unpacked = {digest(gzip.decompress(base64.b64decode(text)).decode()) for text in packed}
    assert len(allowed) == 3  # the one that unpacks, plotly and the page's own
    assert set(allowed[1:]) <= unpacked
    assert "default-src 'none'" in str(policies)
    assert HARM not in page
