"""Graph, schedules and curve of the network that the explorer begins with, which come with the package.

    python -m tools.first_look

writes them anew, which takes minutes. A test says when that has to be: after a change of the network, of capture, of
predicted costs or of the file's format, or when a search finds something better.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from remat_explorer import Explorer
from remat_explorer.cache_folder import ENVIRONMENT, cache_folder
from remat_explorer.documents import write_json
from remat_explorer.explorer.controllers import exploration_cache

SECONDS = 10.0  # for each point of the curve: more than an explorer takes by itself


def explore() -> dict[str, Any]:
    """What an explorer knows of it at last that has neither this file nor anything else to begin with."""
    compiled = os.environ.get("NUMBA_CACHE_DIR") or str(cache_folder())
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {ENVIRONMENT: folder, "NUMBA_CACHE_DIR": compiled}),
        patch.object(exploration_cache, "FIRST_LOOK", Path(folder) / "none.json"),
    ):
        explorer = Explorer(time_limit=SECONDS)
        explorer.wait()
        explorer.wait_for_sweep()
        state = explorer.state
        begun, found = state.budget, state.frontier
        points = found.nondominated() if found is not None else ()
        for budget in (*(point.budget for point in points), begun):
            state.budget = budget
            explorer.solve()
            explorer.wait()
        explorer.wait_for_sweep()
        document = exploration_cache.exploration_document(explorer.state)
        explorer.close()
    assert document is not None
    document["key"] = {name: value for name, value in document["key"].items() if name not in exploration_cache.VERSIONS}
    return document


if __name__ == "__main__":
    write_json(exploration_cache.FIRST_LOOK, explore())
