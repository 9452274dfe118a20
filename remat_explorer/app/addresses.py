"""Which requests come from the app's own page: by their Host and Origin.

A page of another site can make a browser send requests to this machine, and once its name resolves to 127.0.0.1 (DNS
rebinding) the browser lets it read the answers, too. The name that was used stands in Host, the site that asks in
Origin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher
from tornado.web import RequestHandler

from remat_explorer.app.pages import page

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
WITHIN = ("same-origin", "none")  # what browsers say of a page's own requests, and of an address that was typed in


def refusal(headers: Mapping[str, str], hosts: Collection[str] = ()) -> str:
    """Why a request is not served, or "" if it is.

    Args:
        headers: of the request.
        hosts: names that are served besides those of this machine.

    >>> refusal({"Host": "localhost:8866", "Origin": "http://localhost:8866"})
    ''
    >>> refusal({"Host": "evil.example:8866", "Origin": "http://evil.example:8866"})
    "it asks for the host 'evil.example'"
    >>> refusal({"Host": "evil.example:8866"}, ["evil.example"])
    ''
    >>> refusal({"Host": "127.0.0.1:8866", "Origin": "http://evil.example"})
    "it comes from a page of 'http://evil.example'"
    """
    served = headers.get("Host", "").lower()
    name = _name(served)
    if name not in LOCAL and name not in {host.lower() for host in hosts}:
        return f"it asks for the host {name!r}"
    for origin in [headers[key] for key in ("Origin", "Sec-WebSocket-Origin") if key in headers]:
        if origin.lower() not in (f"http://{served}", f"https://{served}"):
            return f"it comes from a page of {origin!r}"
    # without Origin: what a page loads as an image, a script or a frame; following a link is no such thing
    alone = headers.get("Sec-Fetch-Mode", "navigate") == "navigate" and headers.get("Sec-Fetch-Dest") != "iframe"
    if "Origin" not in headers and not alone and headers.get("Sec-Fetch-Site", "none") not in WITHIN:
        return "it comes from a page of another site"
    return ""


def _name(served: str) -> str:
    """The name in a Host header, "" if it cannot be read.

    >>> _name("[::1]:8866"), _name("localhost"), _name("a@b"), _name("a:b:c")
    ('::1', 'localhost', '', '')
    """
    try:
        parts = urlsplit(f"//{served}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return ""
    name = parts.hostname or ""
    return name if served in (parts.netloc, "") and "@" not in served and not parts.path else ""


class Foreign(Matcher):
    """Matches requests that are not served.

    Args:
        hosts: names that are served besides those of this machine.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        self.hosts = hosts

    def match(self, request: HTTPServerRequest) -> dict[str, dict[str, str]] | None:
        """The arguments of `Refusal`; None for what is served."""
        why = refusal(request.headers, self.hosts)
        return {"target_kwargs": {"why": why}} if why else None


class Refusal(RequestHandler):
    """Answers 403 to every method, and to what would open a socket."""

    def initialize(self, why: str) -> None:
        """Called by tornado with what `Foreign` gave."""
        self._why = why

    def prepare(self) -> None:
        """Answer, whatever is asked."""
        self.set_status(403)
        advice = "Open the address that the app printed. For another name, start it with --allow-host NAME."
        self.finish(page("This request is not served", f"The app serves its own page only; {self._why}.", advice))
