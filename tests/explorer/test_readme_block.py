"""What the README shows of driving the explorer works."""

from __future__ import annotations

import re
from pathlib import Path

import remat_explorer as rx

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_block_that_drives_the_explorer_runs() -> None:
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "rx.Explorer" in b)
    names = {"rx": rx}
    exec(block, names)
    explorer = names["explorer"]
    assert isinstance(explorer, rx.Explorer)
    assert explorer.solution is not None
    assert explorer.state.stage == 5
