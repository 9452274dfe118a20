"""`remat-explorer models`: what can be captured by name."""

from __future__ import annotations

import argparse
import dataclasses

from remat_explorer.cli.output import DONE, put


def models(options: argparse.Namespace) -> int:
    """List the models of the zoo with their published sizes."""
    from remat_explorer.models import names, published_size

    sizes = {name: published_size(name) for name in names()}
    width = max(map(len, sizes))
    lines = [f"{name:{width}}  {size}" for name, size in sizes.items()]
    listed = {name: dataclasses.asdict(size) for name, size in sizes.items()}
    put(options, {"models": listed}, "\n".join(lines))
    return DONE
