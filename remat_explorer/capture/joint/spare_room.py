"""A result that its kernel leaves in a storage much larger than itself is copied out, so that the storage can go.

The mean of `mse_loss` lies in the memory of all squares, and would hold it until the step is over: as a loss, it stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from remat_explorer.capture.joint.gradients import meta_of
from remat_explorer.capture.joint.propagation import Fakes, run_node, storage_key, tensors_of

aten = torch.ops.aten
LEAVING_ROOM = (
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
    aten.binary_cross_entropy.default,
    aten.col2im.default,
)
LEAST = 2  # times its own bytes; with less to win, a copy is not worth its time


def copy_out(module: GraphModule, fakes: Fakes) -> None:
    """Insert a copy after every such call.

    Args:
        module: the joint graph, changed in place.
        fakes: its values; those of the copies are added.
    """
    for node in list(module.graph.nodes):
        if node.target not in LEAVING_ROOM or not _leaves_room(fakes[node]):
            continue
        with module.graph.inserting_after(node):
            copied = module.graph.call_function(aten.clone.default, (node,))
        node.replace_all_uses_with(copied, delete_user_cb=lambda user, copied=copied: user is not copied)
        copied.meta = meta_of(node)
        fakes[copied] = run_node(copied, fakes)
        _see_the_copy(copied, fakes)
    module.recompile()


def _see_the_copy(copied: Node, fakes: Fakes) -> None:
    """Views of what was copied are views of the copy."""
    before = storage_key(fakes[copied.args[0]])  # type: ignore[index]
    seen = [copied]
    for node in seen:
        for user in node.users:
            if user in fakes and before in {storage_key(tensor) for tensor in tensors_of(fakes[user])}:
                fakes[user] = run_node(user, fakes)
                seen.append(user)


def is_copy_of(node: Node, source: Node) -> bool:
    """Whether ``node`` is what `copy_out` has inserted after ``source``."""
    return node.target is aten.clone.default and node.args == (source,) and source.target in LEAVING_ROOM


def _leaves_room(fake: Any) -> bool:
    return fake.untyped_storage().nbytes() >= LEAST * max(1, fake.numel()) * fake.element_size()
