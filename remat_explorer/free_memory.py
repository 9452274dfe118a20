"""How much memory this machine has left, asked before anything is run that it would not survive."""

from __future__ import annotations

from pathlib import Path


def free_bytes(device: str) -> int:
    """Memory that can still be allocated on ``device``, bytes; on the CPU without swapping."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return min(1024 * int(line.split()[1]), _left_in_container())
    return 2**62  # not Linux: nothing is known, so nothing is refused


def _left_in_container() -> int:
    """What the control group still allows: in a container the machine's own number is too high."""
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    return int(limit[0]) - int(used[0]) if limit and used and limit[0].isdigit() else 2**62


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
