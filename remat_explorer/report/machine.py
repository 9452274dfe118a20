"""What a report says about machine and software: versions and names of devices, but neither host nor paths."""

from __future__ import annotations

import importlib.metadata
import platform


def versions() -> list[tuple[str, str]]:
    """Versions of what a result depends on.

    >>> [name for name, _ in versions()]
    ['python', 'torch', 'plotly', 'remat_explorer']
    """
    packages = [(name, importlib.metadata.version(name)) for name in ("torch", "plotly", "remat_explorer")]
    return [("python", platform.python_version()), *packages]


def devices() -> list[tuple[str, str]]:
    """Names of the CPU, of the GPU where there is one, and of the operating system."""
    import torch

    from remat_explorer.capture.profiling.profile_key import processor_name

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [("CPU", processor_name()), ("GPU", gpu), ("system", f"{platform.system()}, {platform.machine()}")]
