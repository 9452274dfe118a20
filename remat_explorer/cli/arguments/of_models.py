"""Options that say which model or graph is meant, and how it is captured."""

from __future__ import annotations

import argparse

from remat_explorer.cli.arguments.types import count


def model_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        graph_too = child.prog.endswith(("show", "solve", "sweep", "ablation", "max-batch", "minimum-budget", "report"))
        child.add_argument("model", metavar="MODEL|GRAPH.json" if graph_too else "MODEL")
        child.add_argument("--batch", type=count, help="batch size (default: the model's own)")
        child.add_argument("--image", type=count, help="side of the square input image in pixels")
        child.add_argument("--sequence", type=count, help="tokens of an example (default: the published number)")
        child.add_argument("--layers", type=count, help="blocks of the model (default: the published number)")
        either = argparse.BooleanOptionalAction
        child.add_argument("--tied", action=either, help="the embedding is the head's weight (default: as published)")
        child.add_argument("--precision", metavar="NAME", help="float32 (default), bfloat16 or autocast")


def cost_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        of_costs = "device whose published rates give costs: A100, A100-roofline, … (default: cpu)"
        child.add_argument("--costs", metavar="DEVICE", help=of_costs)


def capture_options(*children: argparse.ArgumentParser) -> None:
    either = argparse.BooleanOptionalAction
    for child in children:
        child.add_argument("--optimizer", metavar="NAME", help="count the state of sgd, momentum or adam as resident")
        child.add_argument(
            "--contract", action=either, help="join operations where nothing is lost (policy: not by default)"
        )
        child.add_argument(
            "--split-convolution-backward", action=either, help="separate a convolution's input gradient (default)"
        )


def implementation_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        child.add_argument(
            "--implementations",
            metavar="KINDS",
            help="alternatives to choose among: exact (bit-equal), all, or kinds with commas (default: none)",
        )
