"""What every test has: shared instances and a cache of its own session. Neither torch nor numba is loaded here.

Folders whose tests run PyTorch import the fixtures of `tests.torch_fixtures`, and those whose tests search for
schedules that of `tests.search_fixtures`.
"""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from remat_explorer.cache_folder import cache_folder
from remat_explorer.graph import Graph

# Compiled code stays where it is kept without tests, in this process and those that it starts. numba reads the variable
# when it is imported.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder()))
# One thread for linear algebra in each process that tests start: those of several would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

with suppress(ImportError):  # a machine that runs the tests marked gpu alone need not have it
    from hypothesis import settings

    settings.register_profile("untimed", parent=settings(), deadline=None)  # the first example may load a solver
    settings.load_profile("untimed")

DATA = Path(__file__).parent / "data"
BROWSER = "tests/browser/"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of shared instances."""
    return DATA


@pytest.fixture(scope="session")
def beside():
    """Copier of a graph in which every output has a storage of its own, beside that of every input."""

    def copy(graph: Graph) -> Graph:
        ways = (dataclasses.replace(node.default, overwrites=None) for node in graph.operations)
        pairs = zip(graph.operations, ways, strict=True)
        return dataclasses.replace(
            graph, operations=tuple(dataclasses.replace(node, implementations=(way,)) for node, way in pairs)
        )

    return copy


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this session only; in the environment, so that kernels and servers started by tests see it too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """All files in a browser go to one worker: they share a page, and the other worker has the other core."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class BrowserApart(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)

    return BrowserApart(config, log)
