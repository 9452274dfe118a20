"""The kernels of the app: how many there may be, and when one that nobody uses ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from jupyter_client.session import utcnow
from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets import Integer, default

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
