"""Fixtures that every room shares."""

import dataclasses
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from remat_explorer.graph import Graph

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton asks for it when it is imported

DATA = Path(__file__).parent / "data"


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
def one_thread() -> None:
    """One thread for torch: small models run no slower, and a busy machine does not multiply their time."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def quick_collection() -> None:
    """What is there before a test is left out when garbage is collected, as measuring memory does again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def settings_of_torch() -> Iterator[None]:
    """Whatever a test runs leaves torch as it found it."""
    before = _settings()
    yield
    assert _settings() == before


def _settings() -> dict[str, object]:
    import torch

    cudnn = torch.backends.cudnn
    return {
        "oneDNN": torch.backends.mkldnn.enabled,
        "cuDNN": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "autocast cache": torch.is_autocast_cache_enabled(),
    }


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this session only; in the environment, so that kernels and servers started by tests see it too.

    Compiled code stays where it is kept without this: no test, and no process of a test, compiles anew.
    """
    from remat_explorer.solvers.search.compilation import warm_up
    from remat_explorer.solvers.search.machine_code import folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(folder().parents[1]))
        warm_up()
        patch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
