"""A state with a solved schedule, and the panels that show it."""

import weakref
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects  # noqa: F401  # where it is not loaded, a thread draws the plots later
import pytest

import remat_explorer as rx
from remat_explorer.explorer import State
from remat_explorer.explorer.controllers.driver import Driver
from remat_explorer.explorer.controllers.screen import show_schedule
from remat_explorer.explorer.panels.panels import Panels
from tests.search_fixtures import compiled_search, fitting_worker  # noqa: F401
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def no_work_left_behind() -> Iterator[None]:
    """Explorers of a file stop working with it: other tests have caches and processors of their own."""
    begun: list[weakref.ref[Driver]] = []
    plain = Driver.__init__

    def begin(self: Driver, *given: Any, **named: Any) -> None:
        begun.append(weakref.ref(self))
        plain(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "__init__", begin)
        yield
    left = [driver for reference in begun if (driver := reference()) is not None and "state" in vars(driver)]
    for driver in left:  # those that were not closed
        driver.stop()
    for driver in left:
        assert driver.wait_for_sweep(60)


@pytest.fixture(scope="session")
def tight() -> rx.Solution:
    """The eight-layer chain within 4 bytes: 9 recomputations."""
    return rx.solve(rx.linear(8), budget=4)


@pytest.fixture(scope="session")
def keep(tight: rx.Solution) -> rx.Solution:
    return rx.solve(tight.graph, "100%", "checkpoint-all")


@pytest.fixture
def state(tight: rx.Solution) -> State:
    found = State(graph=tight.graph, budget=4, checkpoint_all_peak=10)
    show_schedule(found, tight.schedule, tight)
    return found


@pytest.fixture
def panels(state: State) -> Panels:
    return Panels(state)
