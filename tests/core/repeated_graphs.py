"""Graphs of networks that repeat a block, as large as one likes."""

from remat_explorer.graph import Graph, Operation, Value, operation

# What a block of a transformer computes: name, what it reads (`x` is the block before, `mask` is shared), bytes, cost.
TRANSFORMER = (
    ("norm1", ("x",), 4, 1),
    ("query", ("norm1",), 4, 8),
    ("key", ("norm1",), 4, 8),
    ("value", ("norm1",), 4, 8),
    ("scores", ("query", "key", "mask"), 16, 6),
    ("softmax", ("scores",), 16, 2),
    ("mix", ("softmax", "value"), 4, 6),
    ("output", ("mix",), 4, 8),
    ("add1", ("x", "output"), 4, 1),
    ("norm2", ("add1",), 4, 1),
    ("up", ("norm2",), 16, 30),
    ("gelu", ("up",), 16, 3),
    ("down", ("gelu",), 4, 30),
    ("add2", ("add1", "down"), 4, 1),
)
WEIGHTED = ("query", "key", "value", "output", "up", "down", "embedding", "head")
SAVING = ("norm1", "norm2", "softmax", "scores", "mix", "gelu", *WEIGHTED)  # whose gradients read their inputs


class Network:
    """A forward pass that is written down operation by operation, and then its backward pass."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[Value] = []
        self.forward: list[tuple[str, tuple[int, ...], int, float]] = []

    def add(self, name: str, reads: tuple[int, ...], size: int, cost: float) -> int:
        """The number of an operation and of its value."""
        self.values.append(Value(name, size))
        self.forward.append((name, reads, len(self.values) - 1, cost))
        return len(self.values) - 1

    def graph(self) -> Graph:
        """Every operation gets one in the backward pass, which reads what the operation has read where it must.

        Gradients of a value that is read several times are added, two at a time, by operations of their own.
        """
        operations: list[Operation] = [
            operation(name, "forward", reads, [k], cost) for k, (name, reads, _, cost) in enumerate(self.forward)
        ]
        values, gradients = list(self.values), {k: [] for k in range(len(self.forward))}
        for name, reads, k, cost in reversed(self.forward):
            plain = name.rsplit(".", 1)[-1]
            writes = []
            while len(gradients[k]) > 1:
                one, other = gradients[k][:2]
                values.append(Value(f"sum for {name}", self.values[k].bytes))
                gradients[k][:2] = [len(values) - 1]
                operations.append(operation(f"{name} sum", "backward", [one, other], [len(values) - 1], 1))
            for v in reads:
                if self.forward[v][0] != "mask":
                    writes.append(len(values))
                    values.append(Value(f"d{self.forward[v][0]} from {name}", self.values[v].bytes))
                    gradients[v].append(writes[-1])
            if plain in WEIGHTED:
                writes.append(len(values))
                values.append(Value(f"{name}.weight.grad", 2, persistent=True))
            if writes:
                saved = reads if plain in SAVING else ()
                operations.append(operation(f"{name} backward", "backward", [*saved, *gradients[k]], writes, 2 * cost))
        return Graph(self.name, tuple(values), tuple(operations), resident_bytes=100)


def transformer(layers: int, unlike: tuple[int, ...] = (), costs: dict[int, float] | None = None) -> Graph:
    """A transformer of ``layers`` blocks of 14 operations and 18 of the backward pass; it has 32 layers + 5 operations.

    In blocks ``unlike`` the others `gelu` writes another number of bytes; ``costs`` multiply those of their blocks.
    """
    network = Network(f"transformer{layers}")
    mask = network.add("mask", (), 1, 1)
    x = network.add("embedding", (), 4, 1)
    for layer in range(layers):
        made = {"x": x, "mask": mask}
        for name, reads, size, cost in TRANSFORMER:
            size += name == "gelu" and layer in unlike
            full = f"blocks.{layer}.{name}"
            made[name] = network.add(
                full, tuple(made[read] for read in reads), size, cost * (costs or {}).get(layer, 1)
            )
        x = made["add2"]
    network.add("head", (x,), 8, 20)
    return network.graph()
