"""Captures in threads that end, as the explorer's do."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import torch
import remat_explorer as rx

graphs = []

def capture():
    graphs.append(rx.models.load("mlp", batch=2).graph)
    graphs.append(rx.capture(torch.nn.Linear(2, 2), (torch.ones(1, 2),)))

for _ in range(4):
    thread = threading.Thread(target=capture)
    thread.start()
    thread.join()
    held = [bytearray(100) for _ in range(100_000)]  # what the thread has freed is written over
print(len(graphs))
"""


def test_captures_in_one_thread_after_the_other_leave_the_process_alive() -> None:
    # A CUDA build of PyTorch 2.11 without a device crashed here; other builds never did.
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout) == (0, "8\n"), run.stderr[-2000:]
