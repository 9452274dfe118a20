"""Through views of tensors, to the call that made what they show and to the calls that read it."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten
TURNED = aten.t.default
VIEWS = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.alias.default,
    aten.detach.default,
    TURNED,
)


def made_by(node: Any) -> Node:
    """The call that made what views of it show."""
    while isinstance(node, Node) and node.target in VIEWS:
        node = node.args[0]
    return node


def readers_of(node: Node) -> set[Node]:
    """The calls that read a tensor or views of it, but views."""
    found: set[Node] = set()
    for user in node.users:
        found |= readers_of(user) if user.target in VIEWS else {user}
    return found


def turns(node: Any) -> int:
    """How many of the views that lead to a node turn a matrix."""
    count = 0
    while isinstance(node, Node) and node.target in VIEWS:
        count += node.target is TURNED
        node = node.args[0]
    return count
