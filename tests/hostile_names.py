"""A graph whose names are written to do harm in HTML, in plotly's texts, in Python and on a terminal."""

from dataclasses import replace

import remat_explorer as rx

HARM = '</script><img src=x onerror="window.ran=1"><a href="https://evil.example">it</a>\nimport os\x1b[2J\u2028'


def hostile(graph: rx.Graph) -> rx.Graph:
    """The graph with such names for itself, its values, operations and implementations."""
    return replace(
        graph,
        name=f"{graph.name}{HARM}",
        values=tuple(replace(value, name=f"{value.name}{HARM}") for value in graph.values),
        operations=tuple(
            replace(
                operation,
                name=f"{operation.name}{HARM}",
                implementations=tuple(replace(way, name=f"{way.name}{HARM}") for way in operation.implementations),
            )
            for operation in graph.operations
        ),
    )
