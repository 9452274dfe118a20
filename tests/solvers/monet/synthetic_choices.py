"""Alternatives made for graphs of captured networks from names and sizes alone, with costs of bytes moved.

What `remat_explorer.capture` makes from the real operators is better; these let the solvers be tested without torch.
"""

from __future__ import annotations

from dataclasses import replace

from remat_explorer.graph import Graph, Implementation, Operation, Value


def with_choices(graph: Graph) -> Graph:
    """Masks of bits, other inputs of activations and batch norms, small pool indices, input gradients without input."""
    return _Maker(graph).run()


class _Maker:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = list(graph.values)
        self.operations = list(graph.operations)
        self.after: dict[int, list[Operation]] = {}
        self.small: dict[int, int] = {}  # index of a pool: its small form

    def run(self) -> Graph:
        graph = self.graph
        for k, node in enumerate(graph.operations):
            name, forward = node.name, node.phase == "forward"
            if "max_pool2d" in name and forward and len(node.default.outputs) == 2:
                self._pool(k)
        for k, node in enumerate(graph.operations):
            name = node.name
            if node.phase == "forward":
                continue
            if "threshold_backward" in name or "relu_backward" in name or "hardtanh_backward" in name:
                self._activation(k)
            elif "max_pool2d" in name:
                self._pool_backward(k)
            elif "batch_norm_backward" in name:
                self._batch_norm(k)
            elif "input_gradient" in name or name.startswith("convolution_backward_default"):
                self._input_gradient(k)
        operations = [node for k, first in enumerate(self.operations) for node in (first, *self.after.get(k, ()))]
        return Graph(graph.name, tuple(self.values), tuple(operations), graph.resident_bytes)

    def _way(self, k: int, name: str, reads: list[int], writes=None, times: float | None = None) -> Implementation:
        """The default with other reads and writes; its cost by bytes moved, or ``times`` the default's."""
        way = self.operations[k].default
        writes = way.outputs if writes is None else tuple(writes)
        if times is None:
            moved = sum(self.values[v].bytes for v in (*way.inputs, *way.outputs))
            times = sum(self.values[v].bytes for v in (*reads, *writes)) / moved
        kept = way.overwrites if way.overwrites in reads and len(writes) == 1 else None
        return replace(
            way, inputs=tuple(reads), outputs=writes, cost=way.cost * times, name=name, overwrites=kept, workspace=0
        )

    def _add(self, k: int, *ways: Implementation) -> None:
        node = self.operations[k]
        self.operations[k] = replace(node, implementations=(*node.implementations, *ways))

    def _value(self, name: str, size: int) -> int:
        self.values.append(Value(name, size))
        return len(self.values) - 1

    def _split(self, k: int) -> tuple[list[int], list[int]]:
        """Inputs that the forward pass writes, and the others."""
        inputs = self.graph.inputs(k)
        backward = [self.graph.is_backward[self.graph.producer[v]] for v in inputs]
        ours = [v for v, late in zip(inputs, backward, strict=True) if not late]
        return ours, [v for v, late in zip(inputs, backward, strict=True) if late]

    def _activation(self, k: int) -> None:
        saved, gradients = self._split(k)
        if len(saved) != 1 or len(gradients) != 1:
            return
        saved_of, graph = saved[0], self.graph
        source = int(graph.producer[saved_of])
        sources = [saved_of]
        for u in graph.readers[saved_of]:  # a copy or an activation of the same bytes, before or after
            node = graph.operations[u]
            if node.phase == "forward" and ("hardtanh" in node.name or "relu" in node.name):
                sources += node.default.outputs
        if any(word in graph.operations[source].name for word in ("relu", "hardtanh", "clone")):
            before = graph.inputs(source)
            sources += [v for v in before if graph.values[v].bytes == graph.values[saved_of].bytes]
            if "clone" in graph.operations[source].name:
                for u in graph.readers[before[0]]:
                    if "hardtanh" in graph.operations[u].name and graph.operations[u].phase == "forward":
                        sources += graph.outputs(u)
        sources = [v for v in dict.fromkeys(sources) if not graph.values[v].persistent]
        mask = self._value(f"bits {k}", (graph.values[saved_of].bytes // 4 + 7) // 8)
        cost = self.operations[k].default.cost / 2
        makers = tuple(Implementation((v,), (mask,), cost, name=f"from {i}") for i, v in enumerate(sources))
        last = max(int(graph.producer[v]) for v in sources)
        self.after.setdefault(last, []).append(Operation(f"bits {k}", "forward", makers, optional=True))
        self._add(k, *[self._way(k, f"other {i}", [v, *gradients]) for i, v in enumerate(sources[1:])])
        self._add(k, self._way(k, "bits", [mask, *gradients]))

    def _pool(self, k: int) -> None:
        y, index = self.graph.outputs(k)
        if self.graph.values[index].bytes < self.graph.values[y].bytes:
            y, index = index, y
        self.small[index] = small = self._value(f"small index {k}", self.graph.values[index].bytes // 8)
        reads = list(self.graph.inputs(k))
        self._add(k, self._way(k, "small index", reads, [y, small], 1.2), self._way(k, "no index", reads, [y], 1.0))

    def _pool_backward(self, k: int) -> None:
        inputs = list(self.graph.inputs(k))
        indices = [v for v in inputs if v in self.small]
        if len(indices) != 1:
            return
        saved, gradients = self._split(k)
        source = [v for v in saved if v not in indices]
        self._add(
            k,
            self._way(k, "index", [*indices, *gradients], times=1.0),
            self._way(k, "small index", [self.small[indices[0]], *gradients], times=1.6),
            *([self._way(k, "recomputed", [*source, *gradients], times=4.0)] if source else []),
        )

    def _batch_norm(self, k: int) -> None:
        graph, (saved, gradients) = self.graph, self._split(k)
        size = max(graph.values[v].bytes for v in saved)
        large = [v for v in saved if graph.values[v].bytes == size]
        makers = {int(graph.producer[v]) for v in saved if v not in large}
        if len(large) != 1 or len(makers) != 1:
            return
        outputs = [v for v in graph.outputs(makers.pop()) if graph.values[v].bytes == size]
        if len(outputs) == 1 and outputs != large:
            reads = [v for v in saved if v not in large] + outputs + gradients
            self._add(k, replace(self._way(k, "output-activated", reads, times=1.0), tolerance=1e-6))

    def _input_gradient(self, k: int) -> None:
        saved, gradients = self._split(k)
        if saved and len(gradients) == 1 and not any(self.values[v].persistent for v in self.graph.outputs(k)):
            self._add(k, self._way(k, "gradient alone", gradients, times=1.0))
