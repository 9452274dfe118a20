"""`remat-explorer app`: the explorer alone, as a page."""

from __future__ import annotations

import argparse
from typing import NoReturn

from remat_explorer.app import Serving, open_app
from remat_explorer.errors import ModelError
from remat_explorer.model_source import is_model_file
from remat_explorer.permissions import Permissions


def app(options: argparse.Namespace) -> NoReturn:
    """Serve the explorer until it is stopped."""
    serving = Serving(
        options.port,
        options.theme,
        browser=not options.no_browser,
        token=not options.without_token,
        hosts=tuple(options.allow_host),
        kernels=options.max_kernels,
        idle_minutes=options.idle_minutes,
    )
    models = None if options.allow_model_files else tuple(map(_function_of, options.files))
    permissions = Permissions(models, saving=options.allow_saving, paths=options.allow_paths)
    open_app(serving, permissions)


def _function_of(name: str) -> str:
    if not is_model_file(name):
        raise ModelError(f"{name!r} is no model file: write path/to/file.py:function; models of the zoo need no file")
    return f"{name}:make_model" if name.endswith(".py") else name
