"""How strategies of other packages come into the registry, without being imported before they are used.

They are entry points of the group `GROUP`, each of which names a `Method`:

    [project.entry-points."remat_explorer.strategies"]
    my-strategy = "my_package.my_module:METHOD"

Every process of a solve or a sweep finds them there, which an assignment to the registry in one process would not do.
The names are read at once, the module on first use. It may therefore import what it likes of this package, and an
installed package that is broken spoils no other strategy. The package's own strategies are not entry points too: an
editable installation would know new ones only once it is made again.
"""

from __future__ import annotations

from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from remat_explorer.errors import SolverError
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import Method

GROUP = "remat_explorer.strategies"


def plugged_in(taken: Container[str]) -> dict[str, Method]:
    """The strategies of other packages by their names; those whose names are taken are left out.

    >>> plugged_in(taken={"optimal"})
    {}
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    return {name: cast(Method, PluggedIn(entry)) for name, entry in entries.items() if name not in taken}


class PluggedIn:
    """A `Method` of another package, loaded by the first look at one of its attributes.

    Args:
        entry: of the group `GROUP`.

    Raises:
        SolverError: from every use, if the entry point cannot be loaded or is no `Method`; it names the package.
    """

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = entry
        self._method: Method | None = None

    def __call__(self, graph: Any, budget: int, limits: Limits, **options: Any) -> Answer:
        """Run the strategy."""
        return self._loaded()(graph, budget, limits, **options)

    @property
    def loaded(self) -> Method:
        """The method itself."""
        return self._loaded()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # whoever asks for these wants no method: pickle, copy, notebooks
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> Method:
        if self._method is None:
            entry, package = self._entry, self._entry.dist.name if self._entry.dist else "an unknown package"
            where = f"the strategy {entry.name!r} of {package}, {entry.value!r},"
            try:
                method = entry.load()
            except Exception as error:  # whatever importing a module can raise
                raise SolverError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
            if not isinstance(method, Method):
                raise SolverError(f"{where} is no remat_explorer.solvers.method.Method but {method!r}")
            self._method = method
        return self._method
