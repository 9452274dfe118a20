"""From a plain `nn.Module` to its training graph, with predicted or measured costs: `capture`, `trace`, `profile`.

The module itself can be called: `remat_explorer.capture(model, (x,))` works whether or not the package of the same
name has been imported.

To read in this order: `tracing` is the whole way from a model to its program. `training_step` makes one function of
model and loss, and `joint_trace` its forward and backward graph, within a FakeTensorMode (`fake_tensors`) that tells
layouts as kernels give them and knows what follows from inputs (`content_tracking`). `graph_rewrites` simplify that
graph, and `propagation` tells the storages in it, of which the operations are made. What a plan could not repeat is
refused before the trace (`model_checks`), in it (`parameter_guard`) and after it (`trace_checks`, `trace_errors`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from remat_explorer.callable_module import make_callable
from remat_explorer.capture.attributes import HOOKS, REGISTRIES, AttributeReads, Changes, InputEntry, Place
from remat_explorer.capture.autocast import Autocast, no_autocast
from remat_explorer.capture.captured_program import Body, Call, Program, Registers, Result
from remat_explorer.capture.cuda_target import target_of
from remat_explorer.capture.devices import find_device
from remat_explorer.capture.dry_run import TensorPlaceholder, dry_run_forward, has_placeholder, store_placeholders
from remat_explorer.capture.fake_tensors import fake_tensor_mode
from remat_explorer.capture.generated_sources import drop_source_with
from remat_explorer.capture.graph_assembly import TRAINED, assemble, identifier, number_storages
from remat_explorer.capture.graph_rewrites import graph_results, is_random, output_node, rewrite_graph, state_bytes
from remat_explorer.capture.in_place import IN_PLACE, OVER_GRADIENT, SWAPPED, Overwriting, fits
from remat_explorer.capture.input_assumptions import BrokenAssumption
from remat_explorer.capture.inputs_and_outputs import (
    Loss,
    OutputStructure,
    loss_elsewhere,
    map_leaves,
    map_tensors,
    tensors_in,
)
from remat_explorer.capture.last_capture import keep
from remat_explorer.capture.memory_meter import AllocatorBytes, CudaMeter, peaks_of_process, released_library_workspaces
from remat_explorer.capture.model_checks import require_capturable
from remat_explorer.capture.model_placement import (
    Placement,
    exact_kernels,
    is_absent_cuda,
    is_out_of_memory,
    model_device,
    place,
    require_same_structure,
    torch_device,
)
from remat_explorer.capture.operation_calls import body_of, in_place_bodies, view_of
from remat_explorer.capture.operation_rewrites import contract_operations, weight_gradients_first
from remat_explorer.capture.profile_cache import Profile, name_of_call, processor_name
from remat_explorer.capture.profiling import ProfilingRun, everything, profile
from remat_explorer.capture.propagation import fake_mode, propagate, storage_key, tensors_of
from remat_explorer.capture.sharded_parameters import COLLECTIVES, REDUCE_SCATTER
from remat_explorer.capture.sharding import (
    FAILED,
    SOLUTION,
    STEP,
    DisagreementError,
    ProcessGroup,
    as_part_of,
    is_sharded,
    reshard,
    shard_groups,
)
from remat_explorer.capture.snapshots import ABSENT, MISSING, PLAIN, FunctionSnapshot, Identity, Snapshot, SnapshotTaker
from remat_explorer.capture.stopwatch import laps_on, seconds_of
from remat_explorer.capture.storage_census import StorageCensus
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages, find_storages
from remat_explorer.capture.trace_errors import first_line
from remat_explorer.capture.tracing import trace
from remat_explorer.capture.training_step import Example, TrainingStep, detached_inputs, substitute_tensors, unwrap
from remat_explorer.capture.variables import UNSET, Variable
from remat_explorer.capture_options import CUDA, CaptureOptions, kinds_of
from remat_explorer.entry_checks import require_arguments
from remat_explorer.graph import Graph

RATES_OF_CUDA = "A100"  # published rates for costs where only CUDA is named: the first of Ampere


def capture(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str = "cpu",
    *,
    optimizer: str | None = None,
    contract: bool = True,
    split_convolution_backward: bool = True,
    fake: bool = True,
    implementations: str | Iterable[str] | None = None,
    kernels: str | None = None,
) -> Graph:
    """The training graph of ``model``: forward, loss and backward, without allocating a tensor.

    Precision, autocast, frozen parameters and training or evaluation mode are taken as they are. Of a model that
    `torch.distributed.fsdp.fully_shard` has sharded it is the graph of this process, with all-gathers of parameters and
    reduce-scatters of gradients among the operations.

    Args:
        model: any module with static shapes; it is left as it is.
        args: its positional inputs, tensors or nested tuples, lists, dictionaries and dataclasses of tensors.
            FakeTensors and tensors on the meta device stand for real ones, in inputs and model alike. An input that
            requires a gradient gets one, which is then a result of the step, as those of parameters are.
        kwargs: its keyword inputs.
        loss: from the model's output to a scalar tensor. None takes a scalar output as the loss; else the scalar
            called ``loss`` of an output that has one as attribute or key, as models of transformers have when they
            are given labels; else the loss is computed elsewhere: the outputs stay in memory, and so do the gradients
            from which backward starts, one for each output that has one.
        device: whose published rates give the costs in seconds, a key of
            `remat_explorer.capture.devices.DEVICES`; "cuda" for the kernels of CUDA with those of an A100.
        optimizer: "sgd", "momentum" or "adam" adds that optimizer's state to the resident bytes, so that a budget
            means everything on the device; None leaves it out.
        contract: join operations where no schedule worth having is lost
            (`remat_explorer.capture.operation_rewrites`).
        split_convolution_backward: separate the input gradient of a convolution from its weight gradient.
        fake: predict shapes and storages from FakeTensors; False runs each operator once, on tensors that all stay in
            memory, for operators of your own whose fake kernel says something else than the true one.
        implementations: other ways to compute operations, among which a strategy may choose: "exact" for those whose
            results are equal bit for bit, "all", or kinds, keys of `remat_explorer.capture_options.KINDS`.
        kernels: "cuda" for the operations and bytes that CUDA's kernels have, by PyTorch's rules and without a device:
            on the GPU of ``device``, or on any of Ampere or newer where that is no GPU; or a compute capability, such
            as "sm_90". FakeTensors on CUDA mean "cuda" where there is no device. None for the kernels of where the
            model lies. Such a graph is solved and studied here, and runs on the device.

    Raises:
        CaptureError: if the model cannot be captured as a static graph; the message says why.
        UnknownNameError: if the device is not in the table, or there is no such kind of implementations or kernels.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> graph = capture(model, (torch.ones(16, 4),), loss=lambda output: output.mean())
    >>> [node.name for node in graph.operations][:2]
    ['0 linear + relu', '2 linear']
    """
    require_arguments(capture, locals(), but=("model", "args"))
    kinds = kinds_of(implementations)
    costs, kernels = (RATES_OF_CUDA, kernels or CUDA) if device == CUDA else (device, kernels)
    capability = None if device == CUDA else find_device(costs).capability
    state = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    tensors = [*state, *tensors_in((args, kwargs))]
    target = target_of(kernels, tensors, capability)
    meant = None if target is None else str(target)
    options = CaptureOptions(contract, split_convolution_backward, optimizer, fake, kinds, meant)
    program = trace(model, args, kwargs, loss, costs, options, target)
    if not contract:
        program = replace(program, graph=replace(program.graph, example=Example.of(model, args, kwargs, loss)))
    if target is None:
        keep(program, model, args, kwargs, loss)
    return program.graph


make_callable(__name__, capture)
