"""A progress bar for people who look: on a terminal or in a notebook, and nowhere else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar that is gone when the work is done; yields what to call with steps done and in total.

    tqdm's text bar serves both places. Its widget would need ipywidgets, and stays in a saved notebook as an empty box.

    >>> with progress_bar("profiling", 2) as advance:  # silent here: this is no terminal
    ...     advance(1, 2)
    """
    from tqdm.std import tqdm

    notebook = _in_notebook()
    bar = tqdm(
        desc=what,
        total=total,
        leave=False,
        disable=False if notebook else None,  # None: only on a terminal
        file=sys.stdout if notebook else sys.stderr,  # a notebook shows stderr on red
    )
    with bar:
        yield lambda done, _: bar.update(done - bar.n)  # type: ignore[func-returns-value]


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config
