"""Which kinds of implementations a graph has to choose from, and which of them a schedule uses."""

from __future__ import annotations

from remat_explorer.graph import Graph, Implementation, Operation
from remat_explorer.once import once
from remat_explorer.schedule import Schedule

OWN = ""  # the kind of an operation's default implementation, which is PyTorch's own
EXPLAINED: dict[str, tuple[str, str]] = {  # of a kind: its label, and what it does
    "activations": ("activations", "Backward of ReLU from its input, of ReLU6 from its input or output"),
    "masks": ("masks", "Backward of ReLU, ReLU6 and dropout from a mask of one bit per entry"),
    "replay": ("replay", "Backward of dropout, whose mask is drawn again from the generator's state"),
    "pooling": ("pooling", "Max pooling with a byte per output, made with it or later, or with indices found again"),
    "statistics": ("statistics", "Batch normalization computed again with the statistics it has saved"),
    "input-gradients": ("input gradients", "The input gradient of a convolution without its input"),
    "attention": ("attention", "Attention whose backward pass computes the forward pass again"),
    "lean": ("lean", "Backward of batch normalization without a temporary"),
    "output-activated": ("from outputs", "Backward of batch and layer normalization from the output"),
    "cross-entropy": ("cross-entropy", "Cross-entropy from one number per row"),
    "chunks": ("chunks", "Convolutions of a few samples, perceptrons of some tokens or features at a time"),
    "algorithms": ("algorithms", "Convolutions by another library or with another layout in memory"),
}


def kinds_of_way(node: Operation, way: Implementation) -> tuple[str, ...]:
    """All kinds of an implementation, the one that says what it is for first; none for the default.

    An implementation that a graph's author has given no kind is of a kind of its own, called like it.

    >>> from remat_explorer.instances import linear
    >>> node = linear(1).operations[0]
    >>> kinds_of_way(node, node.default), kinds_of_way(node, Implementation((), (0,), 1.0, name="by hand"))
    ((), ('by hand',))
    """
    if way is node.default:
        return ()
    return way.kinds or (way.name,)


@once
def kinds_of_codes(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """For each operation the first kinds of its implementations; an optional one is of the kind of what reads it."""
    kinds = [[next(iter(kinds_of_way(node, way)), OWN) for way in node.implementations] for node in graph.operations]
    for k, node in enumerate(graph.operations):
        if node.optional:
            made = set(graph.outputs(k))
            served = [
                kind
                for u in sorted({u for v in made for u in graph.readers[v]})
                for kind, way in zip(kinds[u], graph.operations[u].implementations, strict=True)
                if kind and not made.isdisjoint(way.inputs)
            ]
            kinds[k] = [served[0] if served else OWN] * len(node.implementations)
    return tuple(map(tuple, kinds))


@once
def kinds_in(graph: Graph) -> tuple[str, ...]:
    """The kinds of implementations that a graph offers, those that capture knows first.

    >>> from remat_explorer.instances import linear
    >>> kinds_in(linear(3))
    ()
    """
    there = {kind for node in graph.operations for way in node.implementations for kind in kinds_of_way(node, way)}
    there -= {way.name for node in graph.operations if node.optional for way in node.implementations if not way.kinds}
    return (*graph.kinds, *sorted(there.difference(graph.kinds)))


def kinds_used(schedule: Schedule) -> frozenset[str]:
    """The kinds of implementations that a schedule runs; those that only make what others read say nothing."""
    operations = schedule.graph.operations
    runs = {(k, code) for _, k, code in schedule.sequence if not operations[k].optional}
    return frozenset(
        kind for k, code in runs for kind in kinds_of_way(operations[k], operations[k].implementations[code - 1])
    )


def is_exact(graph: Graph, kind: str) -> bool:
    """Whether all implementations of a kind give results that are equal bit for bit."""
    return all(
        way.tolerance == 0
        for node in graph.operations
        for way in node.implementations
        if kind in kinds_of_way(node, way)
    )


def label_of(kind: str) -> str:
    """What a kind is called on the screen.

    >>> label_of("output-activated"), label_of(""), label_of("by hand")
    ('from outputs', 'default', 'by hand')
    """
    return EXPLAINED[kind][0] if kind in EXPLAINED else kind or "default"
