"""When the app ends kernels, by their states alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import utcnow

from remat_explorer.app import server
from remat_explorer.app.server import LimitedKernelManager


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> LimitedKernelManager:
    """A manager that may have two kernels, and forgets those that it ends."""
    monkeypatch.setattr(server, "ENDING", 0.2)
    made = LimitedKernelManager(most=2, cull_idle_timeout=7200)

    async def ended(kernel_id: str, **_: Any) -> None:
        del made._kernels[kernel_id]

    monkeypatch.setattr(made, "shutdown_kernel", ended)
    return made


def planted(manager: LimitedKernelManager, name: str, minutes: float, state: str = "idle", pages: int = 0) -> None:
    """A kernel that last said something so long ago."""
    kernel = SimpleNamespace(
        last_activity=utcnow() - timedelta(minutes=minutes),
        execution_state=state,
        kernel_name="python3",
        kernel_spec=SimpleNamespace(metadata={}),
    )
    manager._kernels[name] = kernel  # type: ignore[assignment]
    manager._kernel_connections[name] = pages


def test_a_new_page_takes_the_place_of_the_one_left_for_longest(manager: LimitedKernelManager) -> None:
    planted(manager, "left", 2)
    planted(manager, "left for longer", 3)
    assert asyncio.run(manager.make_room())
    assert manager.list_kernel_ids() == ["left"]


@pytest.mark.parametrize("given", [{"minutes": 0.5}, {"minutes": 90, "pages": 1}, {"minutes": 90, "state": "busy"}])
def test_a_kernel_that_is_new_shown_or_at_work_keeps_its_place(
    manager: LimitedKernelManager, given: dict[str, Any]
) -> None:
    for name in ("one", "other"):
        planted(manager, name, **given)
    assert not asyncio.run(manager.make_room())
    assert manager.list_kernel_ids() == ["one", "other"]


def test_a_new_page_waits_for_a_kernel_that_is_ending(manager: LimitedKernelManager) -> None:
    planted(manager, "one", 0)
    planted(manager, "other", 0)

    async def ending() -> bool:
        asyncio.get_running_loop().call_later(0.05, manager._kernels.pop, "other")
        return await manager.make_room()

    assert asyncio.run(ending())
    assert manager.list_kernel_ids() == ["one"]


@pytest.mark.parametrize(
    ("minutes", "pages", "ends"), [(14, 0, False), (16, 0, True), (16, 1, False), (119, 1, False), (121, 1, True)]
)
def test_a_kernel_ends_after_a_quarter_of_an_hour_without_a_page_and_after_the_given_time_with_one(
    manager: LimitedKernelManager, minutes: float, pages: int, ends: bool
) -> None:
    planted(manager, "one", minutes, pages=pages)
    asyncio.run(manager.cull_kernel_if_idle("one"))
    assert ("one" not in manager.list_kernel_ids()) is ends
