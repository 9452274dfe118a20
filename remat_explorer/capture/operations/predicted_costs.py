"""Predicted costs of alternative implementations: rough, for they do not know the kernels; a profile measures them."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.operations.costs import flops, roofline
from remat_explorer.capture.operations.devices import Device
from remat_explorer.capture.operations.implementation import CapturedImplementation
from remat_explorer.capture.operations.storages import OperationDraft, Storages

RECOMPUTED = {"attention": 2.0}  # kinds that run more than the floating-point operations of the call they replace


def predicted_cost(draft: OperationDraft, way: CapturedImplementation, storages: Storages, device: Device) -> float:
    """Seconds of an implementation: a roofline of the bytes it moves and the operations of the call it replaces.

    Calls of other operations that it runs again cost what they cost there, and of several parts each changes the cost
    of its own call.
    An implementation that computes nothing costs a launch: a cost of 0 would let a solver repeat it for nothing.
    """
    if way.parts:
        whole = roofline(draft.calls, storages.fakes, device)
        return whole + sum(predicted_cost(draft, part, storages, device) - whole for part in way.parts)
    others = [call for call in draft.calls if call is not way.main]
    computed = [call for call in way.steps if call.target is not operator.getitem]
    if not computed:
        return roofline(others, storages.fakes, device) + device.launch
    tensors: list[torch.Tensor] = []
    for call in way.steps:
        nodes: list[Node] = []
        map_arg((call.args, call.kwargs), nodes.append)
        given = [storages.fakes[node] for node in (*nodes, call.node)]
        tensors += [fake for fake in given if isinstance(fake, torch.Tensor)]  # of several results, those picked
    moved = sum(t.nbytes for t in {id(t): t for t in tensors}.values())
    arithmetic = flops(way.main, storages.fakes) * RECOMPUTED.get(way.kind, 1.0)
    launches = way.gpu_launches if device.gpu and way.gpu_launches else way.launches
    own = max(arithmetic / device.rate, moved / device.bandwidth) + launches * device.launch
    return own + roofline((*others, *way.again), storages.fakes, device)
