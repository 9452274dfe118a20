"""From what a person typed to a model or graph: a name of the zoo, `file.py:function`, or a graph file."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from remat_explorer.capture_options import CUDA, CaptureOptions, kinds_of
from remat_explorer.cli.output import beside_search
from remat_explorer.cli.terminal import complain
from remat_explorer.errors import ModelError
from remat_explorer.graph import Graph
from remat_explorer.model_source import Source, capture_source, is_model_file, load_model_file

SIZES = ("batch", "image", "sequence", "layers", "tied", "precision")
CHOICES = ("optimizer", "contract", "split_convolution_backward")
AMONG_THEM = 'choose among them with "solve --option implementations=KIND,KIND", or with "ablation --kinds"'


def find_graph(options: argparse.Namespace) -> Graph:
    """The graph of ``options.model``, captured unless it is a file.

    Raises:
        RematError: if it cannot be found or captured, or an option does not apply to it.
    """
    if is_graph_file(options.model):
        _refuse(options, (*SIZES, "costs", *CHOICES), "a graph file has its sizes and costs already")
        _refuse(options, ("implementations",), f"a graph file has its implementations already; {AMONG_THEM}")
        return Graph.load(options.model)
    return capture_graph(options, find_source(options, runs=False), options.costs)


def capture_graph(options: argparse.Namespace, source: Source, costs: str | None = None) -> Graph:
    """The graph of a model, with the implementations that were asked for; kinds of which it has none are said."""
    chosen = capture_options(options)
    with beside_search(options, "the capture"):
        graph = capture_source(source, costs, chosen)
    if options.implementations in (None, "exact", "all"):
        return graph
    missing = [kind for kind in chosen.implementations if kind not in graph.kinds]
    if missing:
        kinds = " or ".join(map(repr, missing))
        complain(
            f'no operation of {options.model!r} has an implementation of the kind {kinds}; "all" takes what there is'
        )
    return graph


def find_source(options: argparse.Namespace, device: str = "cpu", runs: bool = True) -> Source:
    """The model of ``options.model``, on ``device``; if it ``runs`` nowhere, CUDA need not be there.

    Raises:
        RematError: if it cannot be found, or an option does not apply to it.
    """
    if is_model_file(options.model):
        _refuse(options, SIZES, "the function of a file chooses its own inputs")
        return _placed(load_model_file(options.model), device, runs)
    if is_graph_file(options.model):
        raise ModelError(
            f"{options.model!r} is a graph file, which has no model to run or capture; "
            "give a model's name or path/to/file.py:function"
        )
    from remat_explorer import models

    if runs:
        _require_device(device)
    chosen = {"layers": options.layers, "tied": options.tied, "precision": options.precision or "float32"}
    loaded = models.load(options.model, options.batch, options.image, options.sequence, device, **chosen)
    sizes = {name: getattr(loaded, name) for name in SIZES[:4]}
    module = loaded.module if runs else loaded.shapes
    return Source(module, loaded.make_args, name=loaded.name, sizes=sizes, kernels=loaded.kernels)


def capture_options(options: argparse.Namespace) -> CaptureOptions:
    """The options of the capture, as far as they were given."""
    given = {name: getattr(options, name) for name in CHOICES}
    if options.implementations is not None:
        given["implementations"] = read_kinds(options.implementations)
    return CaptureOptions(**{name: value for name, value in given.items() if value is not None})


def read_kinds(text: str) -> tuple[str, ...]:
    """Kinds of implementations: "exact", "all", or kinds with commas between them.

    Raises:
        UnknownNameError: if there is no such kind.

    >>> read_kinds("pooling, masks"), read_kinds("exact")[0]
    (('masks', 'pooling'), 'activations')
    """
    return kinds_of(text if text in ("exact", "all") else [part.strip() for part in text.split(",") if part.strip()])


def chosen_strategies(given: str | None, graph: Graph) -> Sequence[str]:
    """The strategies that were named, with commas; else the one for graphs with, or without, choices.

    >>> from remat_explorer.instances import linear
    >>> chosen_strategies("optimal, dtr", linear(2)), chosen_strategies(None, linear(2))
    (['optimal', 'dtr'], ['optimal'])
    """
    if given is None:
        from remat_explorer.solvers import default_strategy

        return [default_strategy(graph)]
    return [name.strip() for name in given.split(",")]


def is_graph_file(text: str) -> bool:
    """Whether an argument is meant as a graph file.

    >>> is_graph_file("vgg16.json"), is_graph_file("vgg16"), is_graph_file("big.py:make_model")
    (True, False, False)
    """
    return not is_model_file(text) and (text.endswith(".json") or os.path.sep in text or Path(text).is_file())


def _require_device(device: str) -> None:
    from remat_explorer.capture import torch_device

    torch_device(device)


def _placed(source: Source, device: str, runs: bool) -> Source:
    from remat_explorer.capture import is_absent_cuda, place

    if not runs and is_absent_cuda(device):
        return dataclasses.replace(source, kernels=CUDA)
    placed = place(source.module, source.make_args(), source.kwargs, device)
    return Source(placed.model, lambda: placed.args, placed.kwargs, source.loss)


def _refuse(options: argparse.Namespace, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        value, flag = getattr(options, name), name.replace("_", "-")
        if value is not None:
            text = f"--{flag} {value}" if not isinstance(value, bool) else f"--{flag}" if value else f"--no-{flag}"
            raise ModelError(f"{text} does not apply to {options.model!r}: {reason}")
