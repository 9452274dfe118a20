"""Voila as it serves the explorer: ``python -P -m remat_explorer.app.server NOTEBOOK``.

It answers its own page only, has a limited number of kernels, of which it ends those that nobody uses, and reads no
configuration from the working directory.

A page of another site can make a browser send requests to this machine, and once its name resolves to 127.0.0.1 (DNS
rebinding) the browser lets it read the answers, too. So requests must come from the app's own page: the name that was
used stands in Host, the site that asks in Origin.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import tornado.web
from jupyter_client.session import utcnow
from jupyter_core.paths import jupyter_config_path
from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler
from traitlets import Integer, List, Unicode, default
from voila.app import Voila
from voila.static_file_handler import TemplateStaticFileHandler
from voila.tornado.handler import TornadoVoilaHandler

from remat_explorer.errors import ModelError
from remat_explorer.permissions import Permissions
from remat_explorer.python_process import become, python_command, python_path

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


LEFT = timedelta(minutes=15)  # a kernel whose page is gone, without having said so, waits no longer than this
IN_THE_WAY = timedelta(minutes=1)  # and no longer than this if a new page needs its place
ENDING = 5.0  # seconds that a new page waits for the kernel of one that was just left


class NoRoomError(Exception):
    """There are as many kernels as there may be."""


class LimitedKernelManager(AsyncMappingKernelManager):
    """Starts a limited number of kernels, and ends those that are idle, whether their page is open or not.

    A kernel is idle while no message goes to its page or comes from there; one that works in the background sends
    messages.
    """

    most = Integer(4, min=1, config=True, help="Kernels that may run at a time.")

    def __init__(self, **settings: Any) -> None:
        self._starting = 0
        super().__init__(**settings)

    @default("cull_connected")
    def _cull_connected(self) -> bool:
        return True

    @default("cull_interval")
    def _cull_interval(self) -> int:
        return max(1, min(60, self.cull_idle_timeout // 2))

    @property
    def has_room(self) -> bool:
        """Whether one more kernel may be started."""
        return len(self.list_kernel_ids()) + self._starting < self.most

    async def make_room(self) -> bool:
        """Whether one more kernel may be started, once those have ended that no page shows any more.

        A page that is loaded anew comes while its former kernel is still ending.
        """
        for _ in range(round(ENDING / 0.1)):
            if self.has_room:
                return True
            await asyncio.sleep(0.1)
        left = [(self._idle(kernel_id), kernel_id) for kernel_id in self.list_kernel_ids() if self._is_left(kernel_id)]
        idle, longest = max(left, default=(timedelta(), ""))
        if idle > IN_THE_WAY:
            await ensure_async(self.shutdown_kernel(longest))
        return self.has_room

    async def start_kernel(self, **given: Any) -> str:
        """Start a kernel, and return its id.

        Raises:
            NoRoomError: if there are as many as there may be.
        """
        if not self.has_room:
            raise NoRoomError
        self._starting += 1
        try:
            return await super().start_kernel(**given)
        finally:
            self._starting -= 1

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End a kernel that has been idle for too long, or for a while and without a page."""
        if self._idle(kernel_id) > LEFT and self._is_left(kernel_id):
            await ensure_async(self.shutdown_kernel(kernel_id))
        else:
            await super().cull_kernel_if_idle(kernel_id)

    def _idle(self, kernel_id: str) -> timedelta:
        """How long no message has gone or come."""
        kernel: Any = self._kernels[kernel_id]
        return utcnow() - getattr(kernel, "last_activity", utcnow())

    def _is_left(self, kernel_id: str) -> bool:
        """Whether no page shows what the kernel does, and it does nothing."""
        kernel: Any = self._kernels[kernel_id]
        return kernel.execution_state != "busy" and not self._kernel_connections.get(kernel_id, 0)


QUIET = Path(__file__).parents[1] / "quiet_app"  # the notebook that is served, and the template of its page
NOTEBOOK = QUIET / "explorer.ipynb"
FOLDER = "REMAT_EXPLORER_FOLDER"  # tells the notebook's kernel where the app was started


@dataclass(frozen=True)
class Serving:
    """Who may reach the app, and how much of the machine its pages take.

    Attributes:
        port: TCP port; the next free one is taken when it is in use.
        theme: ground of the page.
        browser: whether to open a browser besides printing the address.
        token: whether who opens the page must have the token; without it, everybody on this machine may.
        hosts: names besides those of this machine by which the page may be reached, such as that of a proxy.
        kernels: pages that may be open at a time; each has a kernel of some hundred megabytes.
        idle_minutes: after which a kernel that nobody uses ends; 0 for never.
    """

    port: int = 8866
    theme: Literal["light", "dark"] = "light"
    browser: bool = True
    token: bool = True
    hosts: tuple[str, ...] = ()
    kernels: int = 4
    idle_minutes: float = 120


def open_app(serving: Serving, permissions: Permissions) -> NoReturn:
    """Become the app's server until it is stopped: a signal that ends this process ends the server and its kernels.

    What lies in the working directory is imported neither by the server nor by its kernels, and no configuration is
    read from there.

    Args:
        serving: who may reach it, and how much it takes.
        permissions: what those may do who reach it.

    Raises:
        ModelError: if a model file that may be chosen does not exist.
    """
    for name in permissions.models or ():
        file = Path(name.rpartition(":")[0])
        if not file.is_file():
            raise ModelError(f"cannot read {str(file)!r}: there is no such file; give path/to/file.py:function")
    become(app_command(serving), app_environment(permissions))


def app_environment(permissions: Permissions) -> dict[str, str]:
    """The environment of the server and of its kernels."""
    paths = [str(QUIET), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    return {
        **os.environ,
        "JUPYTER_PATH": os.pathsep.join(paths),
        "PYTHONPATH": python_path(),
        "PYTHONSAFEPATH": "1",
        FOLDER: str(Path.cwd()),
        **permissions.to_environment(),
    }


def app_command(serving: Serving) -> list[str]:
    """The command line of the server."""
    command = python_command(
        "-m",
        "remat_explorer.app.server",
        str(NOTEBOOK),
        f"--port={serving.port}",
        "--Voila.ip=127.0.0.1",
        "--template=remat_explorer",
        f"--theme={serving.theme}",
        "--VoilaConfiguration.allow_template_override=NO",
        "--show_tracebacks=False",
        "--VoilaConfiguration.multi_kernel_manager_class=remat_explorer.app.server.LimitedKernelManager",
        f"--LimitedKernelManager.most={serving.kernels}",
        f"--LimitedKernelManager.cull_idle_timeout={round(60 * serving.idle_minutes)}",
        *(f"--ExplorerServer.hosts={name}" for name in serving.hosts),
    )
    if serving.token:
        command.append("--token")
    if not serving.browser:
        command.append("--no-browser")
    return command


WAIT = 60  # seconds after which a page that found no room may try again


class ExplorerPage(TornadoVoilaHandler):
    """Starts a kernel and shows the explorer, or says that there is no room for one more."""

    @tornado.web.authenticated
    async def get(self, path: str | None = None) -> None:
        """The page; 503 where it would need one kernel more than there may be."""
        manager: Any = self.kernel_manager  # a `LimitedKernelManager`
        if not path and not await manager.make_room():
            self._say_full()
            return
        _ = self.xsrf_token  # sets the cookie without which a page that is left cannot end its kernel
        shown: Any = super().get(path)
        try:
            await shown
        except NoRoomError:  # another request has taken the last one meanwhile
            self._say_full()

    def _say_full(self) -> None:
        manager: Any = self.kernel_manager
        minutes = manager.cull_idle_timeout / 60
        wait = f", or wait: one that nobody uses ends after {minutes:g} minutes" if minutes else ""
        self.set_status(503)
        self.set_header("Retry-After", str(WAIT))
        self.finish(
            page(
                "All explorers are in use",
                f"{manager.most} may be open at a time on this machine, since each takes some hundred megabytes.",
                f"Close a page that is not needed any more{wait}. Then load this page again.",
                f"The person who started the app can allow more: remat-explorer app --max-kernels {2 * manager.most}",
            )
        )


class TemplateFile(TemplateStaticFileHandler):
    """A file of the page's template; what names none is not found, however it is written."""

    def parse_url_path(self, path: str) -> str:
        """The path, once it is known to be ``TEMPLATE/static/FILE`` and to lead nowhere else."""
        parts = path.split("/")
        if (
            len(parts) < 3
            or parts[1] != "static"
            or not all(parts)
            or not {".", ".."}.isdisjoint(parts)
            or "\0" in path
        ):
            raise tornado.web.HTTPError(404)
        return super().parse_url_path(path)


class ExplorerServer(Voila):
    """Voila for one notebook."""

    hosts = List(Unicode(), config=True, help="Names that are served besides those of this machine.")

    @default("config_file_paths")
    def _config_file_paths_default(self) -> list[str]:
        return jupyter_config_path()  # not the working directory: a file voila.py there would be run

    def init_handlers(self) -> list[Any]:
        """Voila's, with the page that counts its kernels, behind the check of where a request comes from."""
        usual: Any = super().init_handlers()
        handlers = [(place, OURS.get(handler, handler), *more) for place, handler, *more in usual]
        return [Rule(Foreign(self.hosts), Refusal), *handlers]


OURS = {TornadoVoilaHandler: ExplorerPage, TemplateStaticFileHandler: TemplateFile}
"""What answers in place of Voila's own."""

ExplorerServer.classes = [*Voila.classes, LimitedKernelManager]

if __name__ == "__main__":
    ExplorerServer.launch_instance()
