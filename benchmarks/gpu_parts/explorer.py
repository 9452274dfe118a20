"""The explorer on this device, without a browser: load a model, solve, execute, and what it says after each."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import remat_explorer as rx
from gpu_parts.memory import emptied
from gpu_parts.record import PROBLEM
from gpu_parts.work import Work

MODELS = {"residual_net": 1024, "resnet18": 64}  # and their batch
TINY_MODELS = {"residual_net": 4}
SHARE, PATIENCE = "70%", 60.0  # of the budget; seconds for each step


def run(work: Work) -> None:
    """Model after model."""
    models = TINY_MODELS if work.tiny else MODELS
    work.each(list(models), lambda name: driven(name, models[name], work))
    emptied(work.device)


def driven(name: str, batch: int, work: Work) -> dict[str, Any]:
    """One model: what the explorer says when it has loaded, solved and executed, and how long each took."""
    begun = time.monotonic()
    explorer = rx.Explorer(name, device=work.device, batch=batch, budget=SHARE, improve=False, sweep=False)
    state = explorer.state
    entry: dict[str, Any] = {"batch": batch, "steps": []}
    try:
        for step, act in {"load": None, "solve": explorer.solve, "execute": explorer.execute}.items():
            if act is not None:
                begun = time.monotonic()
                act()
            if not explorer.wait(min(PATIENCE, max(1.0, work.left))):
                return entry | {PROBLEM: f"{step} did not end within {time.monotonic() - begun:.0f} s"}
            words = {"says": state.status, "tone": state.tone}
            entry["steps"].append({"step": step, "seconds": round(time.monotonic() - begun, 2)} | words)
        entry["panel"] = panel_text(explorer)
        if explorer.measurement is None:
            return entry | {PROBLEM: f"nothing was measured: {state.status}"}
        return entry | explorer.measurement.to_document()
    finally:
        explorer.stop()
        explorer.close()


def panel_text(explorer: rx.Explorer) -> str:
    """What a person reads in the panel of the execution."""
    from remat_explorer.explorer.panels.execution_panel import execution_html

    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", execution_html(explorer.state)))).strip()
