"""`remat-explorer models`: what can be captured by name."""

from __future__ import annotations

import argparse

from remat_explorer.cli.output import DONE, put


def models(options: argparse.Namespace) -> int:
    """List the models of the zoo with their published sizes."""
    from remat_explorer.models import names, published_size

    sizes = {name: published_size(name) for name in names()}
    width = max(map(len, sizes))
    lines = [
        f"{name:{width}}  batch {batch}" + (f", {image[0]} x {image[1]} pixels" if image else "")
        for name, (batch, image) in sizes.items()
    ]
    listed = {name: {"batch": batch, "image": image} for name, (batch, image) in sizes.items()}
    put(options, {"models": listed}, "\n".join(lines))
    return DONE
