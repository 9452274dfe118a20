"""Voila as it serves the explorer: ``python -P -m remat_explorer.app.server NOTEBOOK``.

It answers its own page only, has a limited number of kernels, and reads no configuration from the working directory.
"""

from __future__ import annotations

from typing import Any

import tornado.web
from jupyter_core.paths import jupyter_config_path
from tornado.routing import Rule
from traitlets import List, Unicode, default
from voila.app import Voila
from voila.static_file_handler import TemplateStaticFileHandler
from voila.tornado.handler import TornadoVoilaHandler

from remat_explorer.app.addresses import Foreign, Refusal
from remat_explorer.app.kernels import LimitedKernelManager, NoRoomError
from remat_explorer.app.pages import page

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
