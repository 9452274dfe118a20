"""What who is at the page may do with the files of the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from remat_explorer.errors import RematError

VARIABLE = "REMAT_EXPLORER_PERMISSIONS"


@dataclass(frozen=True)
class Permissions:
    """In a notebook everything is allowed: the kernel runs whatever its person writes. The app allows less."""

    models: tuple[str, ...] | None = None  # that may be loaded, as "file.py:function"; None for any
    saving: bool = True  # whether exports are written into the working directory, besides being downloads
    paths: bool = True  # whether a solution file may be opened by its path, and not only handed over by the browser

    def to_environment(self) -> dict[str, str]:
        """The variable that tells another process."""
        return {VARIABLE: json.dumps(asdict(self))}

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Permissions:
        """What the variable says; everything where there is none."""
        said = json.loads((os.environ if environment is None else environment).get(VARIABLE, "{}"))
        models = said.pop("models", None)
        return Permissions(None if models is None else tuple(models), **said)

    def shows_source_of(self, path: str) -> bool:
        """Whether lines of a file may be shown: of any, or of the models that may be loaded and of this package."""
        if self.models is None:
            return True
        file, own = Path(path).resolve(), Path(__file__).resolve().parent
        return file.is_relative_to(own) or file in {Path(name.rpartition(":")[0]).resolve() for name in self.models}

    def require_model(self, name: str) -> None:
        """Refuse a model file that may not be loaded."""
        if self.models is not None and name not in self.models:
            known = ", ".join(self.models) or "none"
            raise RematError(
                f"the model file {name!r} may not be loaded here; files that may: {known}. Name it when you start the "
                "app, or start it with --allow-model-files"
            )
