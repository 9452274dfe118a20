"""What takes the memory of a step that keeps everything."""

from __future__ import annotations

from collections.abc import Sequence

from remat_explorer.explanations.peak import alive_at
from remat_explorer.fit.optimizers import Recipe, Weight
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers.checkpoint_all import checkpoint_all


def shares_at_peak(step: Graph, recipe: Recipe, weights: Sequence[Weight]) -> dict[str, int]:
    """Bytes by what takes them at the peak of keeping everything; they add up to it.

    Args:
        step: the graph, whose resident bytes have what the recipe adds.
        recipe: optimizer, master weights, and type of the gradients.
        weights: the parameters that are trained.
    """
    found = alive_at(Plan.of(checkpoint_all(step)))
    values = {row.value: row.bytes for row in found.rows if row.kind == "value" and row.value is not None}
    gradients = sum(count for v, count in values.items() if step.persistent[v] and step.is_backward[step.producer[v]])
    workspace = sum(row.bytes for row in found.rows if row.kind == "workspace")
    parameters, wider = sum(weight.nbytes for weight in weights), recipe.gradient_bytes(weights)
    state, master = recipe.state_bytes(weights), recipe.master_bytes(weights)
    shares = {
        "parameters": parameters,
        "master weights": master,
        "optimizer": state,
        "gradients": gradients + wider,
        "activations": sum(values.values()) - gradients,
        "workspace": workspace,
    }
    shares["inputs, buffers, frozen"] = found.total - sum(shares.values())
    return {what: count for what, count in shares.items() if count}
