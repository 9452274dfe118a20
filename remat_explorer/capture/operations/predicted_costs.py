"""Predicted costs: rough, for they do not know which kernel a library takes on which day; a profile measures them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.operations.costs import flops, roofline
from remat_explorer.capture.operations.devices import Device
from remat_explorer.capture.operations.implementation import CapturedImplementation
from remat_explorer.capture.operations.kernel_times import kernel_time
from remat_explorer.capture.operations.storages import OperationDraft, Storages
from remat_explorer.capture.operations.work import works_of


def predicted_time(calls: Iterable[Node], fakes: Mapping[Node, Any], device: Device) -> float:
    """Seconds of an operation's calls: of their kernels on a GPU, or by the device's roofline. Never 0."""
    if not device.kernels:
        return roofline(calls, fakes, device)
    computed = [call for call in calls if call.target is not operator.getitem]
    return sum(kernel_time(work, device) for call in computed for work in works_of(call, fakes))


def predicted_cost(draft: OperationDraft, way: CapturedImplementation, storages: Storages, device: Device) -> float:
    """Seconds of an implementation: the bytes that it moves, and the arithmetic of the call that it replaces.

    Calls of other operations that it runs again cost what they cost there, and of several parts each changes the cost
    of its own call.
    An implementation that computes nothing costs a launch: a cost of 0 would let a solver repeat it for nothing.
    """
    if way.parts:
        whole = predicted_time(draft.calls, storages.fakes, device)
        return whole + sum(predicted_cost(draft, part, storages, device) - whole for part in way.parts)
    others = [call for call in draft.calls if call is not way.main]
    computed = [call for call in way.steps if call.target is not operator.getitem]
    if not computed:
        return predicted_time(others, storages.fakes, device) + device.launch
    tensors: list[torch.Tensor] = []
    for call in way.steps:
        nodes: list[Node] = []
        map_arg((call.args, call.kwargs), nodes.append)
        given = [storages.fakes[node] for node in (*nodes, call.node)]
        tensors += [fake for fake in given if isinstance(fake, torch.Tensor)]  # of several results, those picked
    moved = sum(t.nbytes for t in {id(t): t for t in tensors}.values())
    own = _time_of_way(way, moved, storages.fakes, device)
    return own + predicted_time((*others, *way.again), storages.fakes, device)


def _time_of_way(way: CapturedImplementation, moved: int, fakes: Mapping[Node, Any], device: Device) -> float:
    """Seconds of the calls that stand in for an implementation's main one, without calls of other operations."""
    launches = way.gpu_launches if device.gpu and way.gpu_launches else way.launches
    if not device.kernels:
        computing = flops(way.main, fakes) * way.arithmetic / device.rate
        return max(computing, moved / device.bandwidth) + launches * device.launch
    works = works_of(way.main, fakes)
    seconds = launches * device.launch
    for work in works:
        asked, times = replace(work.moving(moved / len(works)), flops=work.flops * way.arithmetic), 1.0
        if asked.convolution is not None:
            asked, times = asked.portion(way.portion), 1 / way.portion
        seconds += (kernel_time(asked, device) - device.launch) * times
    return seconds
