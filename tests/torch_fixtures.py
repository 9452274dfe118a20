"""Fixtures of tests that run PyTorch; the conftest.py of their folder imports them."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton asks for it when it is imported


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


@pytest.fixture(autouse=True, scope="module")
def forgotten_code() -> Iterator[None]:
    """What torch.compile keeps ends with a file, above all what it skips from then on.

    A compiled module that runs under a mode of dispatch is one that it skips, and so are all other containers after it.
    """
    yield
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def _settings() -> dict[str, object]:
    cudnn = torch.backends.cudnn
    return {
        "oneDNN": torch.backends.mkldnn.enabled,
        "cuDNN": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "autocast cache": torch.is_autocast_cache_enabled(),
    }
