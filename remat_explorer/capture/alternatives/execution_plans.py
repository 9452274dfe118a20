"""The few execution plans of cuDNN that are offered for a convolution, kept in a file so that they stay the same.

Which plans are best depends on times, which differ from run to run. A graph names its implementations, and its
schedules must find them again; so what was chosen once for a convolution on a machine is kept in `cache_folder`.

Source: MONeT (Shah et al., ICLR 2021), appendix C, for the choice among cuDNN's algorithms.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from remat_explorer.cache_folder import cache_folder, entry_path
from remat_explorer.capture.alternatives.exactness import reordered_products
from remat_explorer.capture.alternatives.kernels import cudnn as kernels
from remat_explorer.capture.alternatives.kernels.cudnn_search import found_plans
from remat_explorer.capture.alternatives.kernels.execution_plan import ExecutionPlan, Problem, best_of
from remat_explorer.capture.alternatives.site import Site, picks
from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.convolution_arguments import (
    ConvolutionArguments,
    Part,
    part_of,
    wanted_gradients,
)
from remat_explorer.documents import read_json, require_format, require_keys, write_json
from remat_explorer.errors import RematError

FORMAT, VERSION = "remat-explorer/execution-plans", 1
MOST: dict[Part, int] = {"forward": 3, "input": 3, "weight": 2}  # the rest of an operation's places is for chunks
_KNOWN: dict[str, list[ExecutionPlan]] = {}


def algorithms(site: Site) -> Iterator[CapturedImplementation]:
    """The best plans for result, input gradient or weight gradient of a convolution; on CUDA, with the package."""
    part, arguments = part_of(site.call), ConvolutionArguments.of(site.call)
    result, source, weight, *_ = (site.call, *site.args) if part == "forward" else site.args
    if part is None or arguments.transposed or kernels.why_not(site.fake(source).device):
        return
    made = {"forward": result, "input": site.outputs().get(0), "weight": site.outputs().get(1)}[part]
    nodes = {"input": (made, weight, result), "weight": (source, made, result)}.get(part, (source, weight, result))
    if made is None or str(site.fake(source).dtype).removeprefix("torch.") not in kernels.TYPES:
        return
    tensors = [site.fake(node) for node in nodes]
    for plan in plans_of(kernels.problem_of(part, tensors, arguments), tensors[0].device):
        yield _way(site, plan, part, site.fake(made))


def plans_of(problem: Problem, device: torch.device) -> list[ExecutionPlan]:
    """The plans that are offered: from memory, from their file, or found and timed now."""
    key = {"problem": problem.document(), **_machine(device)}
    text = json.dumps(key, sort_keys=True)
    if text not in _KNOWN:
        plans = load_plans(key)
        if plans is None:
            plans = best_of(found_plans(problem, device), MOST[problem.part])
            store_plans(key, plans)
        _KNOWN[text] = plans
    return _KNOWN[text]


def load_plans(key: dict[str, Any]) -> list[ExecutionPlan] | None:
    """The plans that the file of a key holds, or None if there is none that can be trusted."""
    try:
        document = read_json(entry_path("cudnn", key), RematError)
        require_keys(document, ("format", "version", "key", "plans"), "the execution plans", RematError)
        require_format(document, FORMAT, VERSION, RematError)
        plans = [ExecutionPlan.of(entry) for entry in document["plans"]]
    except (RematError, TypeError):
        return None
    return plans if document["key"] == json.loads(json.dumps(key)) else None


def store_plans(key: dict[str, Any], plans: list[ExecutionPlan]) -> None:
    """Write the plans atomically, or not at all where the folder cannot be written."""
    document = {"format": FORMAT, "version": VERSION, "key": key, "plans": [asdict(plan) for plan in plans]}
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(entry_path("cudnn", key), document)


def title(plan: ExecutionPlan) -> str:
    """The name of the implementation: cuDNN's name of the plan, which has engine and knobs in it.

    >>> title(ExecutionPlan(4, (("TILE_M", 1),), "eng4_k2=1", 0, 0.1))
    'cuDNN eng4_k2=1'
    """
    return f"cuDNN {plan.name}"


def _way(site: Site, plan: ExecutionPlan, part: Part, made: torch.Tensor) -> CapturedImplementation:
    size, strides = list(made.shape), list(made.stride())
    rest = (ConvolutionArguments.of(site.call), size, strides, plan.engine, plan.knobs, plan.workspace)
    tolerance = reordered_products(made)
    if part == "forward":
        steps = (step(site.call, kernels.convolution_by_plan, *site.args[:3], *rest),)
    elif part == "input":
        (result,) = site.outputs().values()
        steps = (step(result, kernels.input_gradient_by_plan, site.args[0], site.args[2], *rest),)
    else:
        given = site.args[0], site.args[1], wanted_gradients(site.call)[2]
        steps = (step(site.call, kernels.weight_gradient_by_plan, *given, *rest), *picks(site))
        tolerance *= 10
    return CapturedImplementation("algorithms", title(plan), site.call, steps, tolerance, workspace=plan.workspace)


def _machine(device: torch.device) -> dict[str, Any]:
    """What the plans depend on beside the problem."""
    find: Callable[[torch.device], str] = torch.cuda.get_device_name
    name = find(device) if device.type == "cuda" else str(device)
    return {"device": name, "cudnn": torch.backends.cudnn.version(), "torch": torch.__version__}
