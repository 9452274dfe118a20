"""The files that a report holds, and the code that trains with them."""

from __future__ import annotations

from pathlib import PurePath

from remat_explorer.documents import to_json
from remat_explorer.graph.file import dump_graph
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.html import code, packed, paragraph


def usage(contents: ReportContents) -> str:
    """Links to the graph and the solution, and a program that uses them."""
    graph, solution = contents.file_name("graph"), contents.file_name("solution")
    words = (
        "This page holds both files: the training graph, and the solution with its matrices. Save them with these "
        "links, next to the program below."
    )
    links = "".join(
        f'<a class="file" href="#" data-file="{identity}" download="{name}">{name}</a> '
        for identity, name in (("graph-file", graph), ("solution-file", solution))
    )
    document = to_json(contents.solution.to_document())
    return (
        paragraph(words)
        + f"<p>{links}</p>"
        + code(program(contents))
        + packed("graph-file", dump_graph(contents.graph) + "\n", graph)
        + packed("solution-file", document + "\n", solution)
    )


def program(contents: ReportContents) -> str:
    """Python that loads the files, and trains the model with the schedule where there are both."""
    graph, solution = contents.file_name("graph"), contents.file_name("solution")
    lines = [
        "import remat_explorer as rx",
        "",
        f'graph = rx.Graph.load("{graph}")',
        f'solution = rx.Solution.load("{solution}", graph)',
        "print(solution)",
    ]
    if contents.solution.schedule is not None and contents.origin.kind != "graph":
        lines += ["", *_training(contents, solution)]
    return "\n".join(lines)


def _training(contents: ReportContents, solution: str) -> list[str]:
    """How to train with the schedule, for each kind of origin."""
    origin = contents.origin
    if origin.kind == "zoo":
        sizes = [(name, getattr(origin, name)) for name in ("batch", "image", "sequence")]
        given = "".join(f", {name}={size!r}" for name, size in sizes if size)
        return [
            f'net = rx.models.load("{origin.model}"{given})',
            f'trained = rx.rematerialize(net.module, net.args, solution="{solution}")',
            "trained(*net.args).backward()  # the model returns its loss; the rest of the loop stays as it is",
        ]
    if origin.kind == "file":
        file, _, function = origin.model.rpartition(":")
        made = [f"from {PurePath(file).stem} import {function}", "", f"made = {function}()"]
        call = "made[0], made[1], made[2] if len(made) > 2 else None, loss=made[3] if len(made) > 3 else None"
        return [
            *made,
            f'trained = rx.rematerialize({call}, solution="{solution}")',
        ]
    return [
        "model, args = ...  # the module and inputs of this report, with its loss as loss=..., if it has one",
        f'trained = rx.rematerialize(model, args, solution="{solution}")',
    ]
