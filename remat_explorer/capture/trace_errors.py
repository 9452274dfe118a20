"""What went wrong while a model was traced: what was met, where, and what to do."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import traceback
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, ParamAOTInput, PlainAOTInput

from remat_explorer.capture.input_assumptions import RANDOM, UnknownContent
from remat_explorer.capture.source_locations import file_name
from remat_explorer.errors import CaptureError

_CAPTURE = str(Path(__file__).parent)
_OVER_FUNCTIONS = ("cond", "while_loop", "map", "scan", "associative_scan", "flex_attention")


@dataclass(frozen=True)
class _Explanation:
    """For errors whose type and text match ``pattern``: what was met, with the pattern's groups, and what to do."""

    pattern: str
    met: str
    advice: str


_AT_RANDOM = _Explanation(
    "",
    "control flow is random: it depends on a number that was drawn",
    "A plan runs the same operations in every step: use torch.where instead of `if`, or switch off what is done at "
    "random, such as layers that are dropped (layerdrop=0.0 in the model's configuration)",
)
_DRAWN_FOR_NOTHING = _Explanation(
    "",
    "control flow is random: a number is drawn, although {switch} is 0 already",
    "Draw only where it is not 0, as in `if self.{switch} and ...`; where the code is a library's and asks for "
    "self.training before it draws, set .training = False on this module alone: layers in it keep their own",
)
_VALIDATION = _Explanation(
    "",
    "a distribution looks into its parameters or samples to validate them",
    "Pass validate_args=False to it, or call torch.distributions.Distribution.set_default_validate_args(False) before",
)
_OWN_BACKWARD = _Explanation(
    "",
    "code of a backward pass reads a number out of a gradient or of what was saved for it",
    "A plan runs the same operations in every step: in the backward of a torch.autograd.Function use torch.where "
    "instead of `if`, and no torch.equal, bool(), float() or .item()",
)
_SCRIPTED = _Explanation(
    "",
    "a function compiled by torch.jit.script reads a number out of a tensor{depends}, which no static plan knows "
    "beforehand",
    "Shapes and control flow may depend on what is in inputs and buffers alone: use torch.where instead of `if` in the "
    "scripted function, and keep bool(), float(), int() and .item() of other tensors out of it; a parameter that is "
    "not trained may be a buffer (register_buffer)",
)
_EXPERTS = _Explanation(
    "",
    "which entries each expert gets, and so the size of a tensor, depends on {reason}",
    'Take experts that compute with static sizes: model.set_experts_implementation("grouped_mm") or "batched_mm"',
)
_OBSERVER = _Explanation(
    "",
    "an observer for quantization looks into {reason}",
    "Take observers that are fused with their quantization, as those of torch.ao.quantization.get_default_qat_qconfig",
)
_BRANCHES = _Explanation(
    "",
    "torch.{operator} is an operator over parts of a model, which a plan cannot see",
    "Use torch.where of both results; or a plain `if` or `for`, which may look into inputs and buffers; "
    "torch.nn.functional.scaled_dot_product_attention in place of flex_attention",
)
_IN_GRAPH = dataclasses.replace(
    _BRANCHES, pattern=r"operator over functions: (\w+)", met=_BRANCHES.met.replace("{operator}", "{0}")
)
_KNOWN = (
    _IN_GRAPH,
    _Explanation(
        r"DataDependentOutputException|GuardOnDataDependentSymNode",
        "it reads a number out of a tensor{depends}, which no static plan knows beforehand",
        "Shapes and control flow may depend on what is in inputs and buffers alone: use torch.where instead of `if`, "
        "and keep bool(), float(), int(), .item() and .tolist() of other tensors out of forward",
    ),
    _Explanation(
        r"DynamicOutputShapeException: aten\.(\w+)",
        "the size of what {0} gives depends on {reason}",
        "Shapes and control flow may depend on what is in inputs and buffers alone: use torch.where or a product with "
        "the mask instead of picking entries, and padding instead of lengths",
    ),
    _Explanation(
        r"Unexpected fake buffer",
        "forward meets tensors that its first pass left in an object that outlives it, such as a key/value cache",
        "Train without such an object: use_cache=False and no past_key_values, or a new one that forward makes itself",
    ),
    _Explanation(
        r"same device|FakeTensorDeviceMismatch",
        "tensors on different devices meet: {error}",
        "Bring the model, its constants and the inputs to one device with .to(...)",
    ),
    _Explanation(
        r"\.numpy\(\) is not supported|Cannot access data pointer of Tensor",
        "a tensor leaves torch, for NumPy or for a pointer to its memory",
        "Write this part with torch operations; if it needs no gradient, compute it beforehand and pass it as an input",
    ),
    _Explanation(
        r"use_reentrant=True",
        "it uses torch.utils.checkpoint in its reentrant form, which hides its backward pass",
        "Use use_reentrant=False, or no checkpoint at all: what to recompute is what the schedule decides",
    ),
    _Explanation(
        r"Cannot backprop through mirrored meta",
        "backward() within the step adds to .grad of parameters, where no plan sees it",
        "Compute these gradients with torch.autograd.grad instead; where they are of parameters, in the backward of an "
        "autograd Function whose apply() takes the parameters, and return them there",
    ),
    _Explanation(
        r"modified by an inplace operation",
        "a tensor that its backward pass needs is overwritten in place; plain PyTorch refuses this, too",
        "Use the operation that is not in place",
    ),
    _Explanation(
        r"expected to have an entirely functional graph|mutating a non-functional tensor",
        "forward writes in place to a tensor that is neither a parameter nor a buffer of the model",
        "Make it a buffer with register_buffer",
    ),
    _Explanation(
        r"Encountered a set_ on a graph input|on an invalid python storage",
        "forward exchanges or writes to the storage of a parameter, a buffer or an input, which a static plan may only "
        "read",
        "Change parameters between steps, under torch.no_grad(), and write into buffers with copy_",
    ),
    _Explanation(
        r"SparseTensorImpl|SparseCsrTensorImpl|layout_impl|[Ss]parse\w*(?:Tensor|Csr|CSR|COO)",
        "it works on sparse tensors, whose size depends on the data",
        "Use dense tensors, and sparse=False in embeddings",
    ),
    _Explanation(
        r"torch\._C\.Generator",
        "it draws random numbers from a torch.Generator of its own",
        "Draw from torch's default generator, the one that torch.manual_seed sets",
    ),
    _Explanation(
        r"Attempting to use FunctionalTensor on its own",
        "it makes a tensor of a class of its own, as as_subclass does",
        "Compute with plain tensors, and use as_subclass on what the model returns",
    ),
    _Explanation(
        r"Mixing fake modes",
        "it holds FakeTensors that are neither parameters nor buffers",
        "Make them buffers with register_buffer",
    ),
    _Explanation(
        r"torch\.classes|is not implemented for __torch__",
        "it holds an object that only TorchScript knows",
        "Use the Python module that it was made from; quantize after training",
    ),
)


def explain_error(
    error: Exception, model: nn.Module, module: str = "", refused: UnknownContent | None = None
) -> CaptureError:
    """The `CaptureError` for whatever was raised while ``model`` was traced; ``error`` is to be its cause.

    A CaptureError says what it has to say already, and only learns where it was: in ``module``, the innermost that was
    running. ``refused`` is what the content that was asked for depends on.
    """
    place = ", ".join(part for part in (f"in {module}" if module else "", _source_line(error)) if part)
    if isinstance(error, CaptureError):
        return CaptureError(f"{error} ({place})") if place else error
    text = f"{type(error).__name__}: {error}"
    asked = re.match("DataDependent|GuardOnData|DynamicOutput", text) and refused
    operator = _higher_order_operator(error)
    at_random = asked and asked.reason == RANDOM.reason
    switch = _zero_switch(model, module) if at_random else ""
    special = (_DRAWN_FOR_NOTHING if switch else _AT_RANDOM,) if at_random else ()
    frames = traceback.extract_tb(error.__traceback__)
    if asked and any(_validates(frame) for frame in frames):
        special = (_VALIDATION,)
    elif asked and not at_random and any(frame.name == "_engine_run_backward" for frame in frames):
        special = (_OWN_BACKWARD,)
    elif asked and "experts" in module and hasattr(model, "set_experts_implementation"):
        special = (_EXPERTS,)
    elif asked and "FakeQuantize" in module:
        special = (_OBSERVER,)
    elif refused and "TorchScript interpreter" in text:
        special = (_SCRIPTED,)
    elif operator:
        special = (_BRANCHES,)
    for explanation in (*special, *_KNOWN):
        if match := re.search(explanation.pattern, text):
            words = {
                "operator": operator,
                "switch": switch,
                "error": first_line(error),
                "depends": f" that depends on {refused.reason}" if refused else "",
                "reason": refused.reason if refused else "the data",
            }
            met, advice = (t.format(*match.groups(), **words) for t in (explanation.met, explanation.advice))
            break
    else:
        met = first_line(error)
        advice = "Run it once in plain PyTorch; if it works there, it may use what has no static graph"
    return CaptureError(
        f"{type(model).__name__} cannot be captured as a static training graph: "
        f"{place + ', ' if place else ''}{met.rstrip('.')}. {advice}"
    )


@contextlib.contextmanager
def explain_errors(model: nn.Module) -> Iterator[None]:
    """Raise whatever the body raises as a `CaptureError` that explains it."""
    try:
        yield
    except Exception as error:
        explanation = explain_error(error, model)
        if explanation is error:
            raise
        raise explanation from error


def explain_result(meaning: object, requiring: Container[str] = ()) -> CaptureError:
    """The error for a result of the joint graph that is neither loss, gradient nor new content of a buffer."""
    changed, trained = getattr(meaning, "mutated_input", None), getattr(meaning, "grad_of", None)
    if isinstance(trained, BufferAOTInput):
        return CaptureError(
            f"the buffer {trained.target!r} requires a gradient, but a plan has gradients of parameters and inputs "
            "alone; make it a parameter (nn.Parameter) if it is trained, else read it detached, as self.buffer.detach()"
        )
    if isinstance(changed, BufferAOTInput) and changed.target in requiring:
        return CaptureError(
            f"the buffer {changed.target!r} requires a gradient, and forward writes into it, as a moving average does; "
            "a plan has gradients of parameters and inputs alone. Freeze it before: "
            f"model.get_buffer({changed.target!r}).requires_grad_(False)"
        )
    if isinstance(changed, ParamAOTInput):
        return CaptureError(
            f"forward writes in place to the parameter {changed.target!r}, which a static plan may only read; change "
            "it between steps instead, in the training loop under torch.no_grad() (an average of another network's is "
            "updated so; an Embedding writes for max_norm), or, where it is not trained, register it as a buffer"
        )
    if isinstance(changed, PlainAOTInput):
        return CaptureError(
            f"forward writes in place to input tensor {changed.idx}, which must last for every repetition; use the "
            "operation that is not in place, such as ReLU(inplace=False)"
        )
    if isinstance(changed, BufferAOTInput):
        return CaptureError(
            f"forward writes into the buffer {changed.target!r} what still has a gradient, so that the next step would "
            "differentiate through this one, too; write detached content into it, such as state.detach()"
        )
    return side_effect_error(type(meaning).__name__)


def side_effect_error(what: str) -> CaptureError:
    """The error for ``what``, a call or a result that serves something else than the outputs of the graph."""
    return CaptureError(
        f"forward does more than compute its outputs ({what}), such as raising errors for some data; "
        "use operations without side effects, such as torch.linalg.solve_ex for torch.linalg.solve, and "
        'orthogonal_map="householder" for torch.nn.utils.parametrizations.orthogonal'
    )


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says.

    >>> first_line(ValueError("no such thing\\nand a long story"))
    'ValueError: no such thing'
    """
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _validates(frame: traceback.FrameSummary) -> bool:
    """Whether this is where a distribution of PyTorch checks its arguments, or the values it is asked for."""
    names = PurePath(frame.filename).parts[-2:]
    return names == ("distributions", "distribution.py") and frame.name in ("__init__", "_validate_sample")


def _zero_switch(model: nn.Module, module: str) -> str:
    """The attribute of a module, given as people name it, for the probability of a dropped layer, if that is 0."""
    path = re.match(r"'([^']*)'", module)
    held = vars(dict(model.named_modules()).get(path[1], model) if path else model)
    names = (name for name in held if re.search(r"layer_?drop|drop_?path|skip_?prob|survival", name, re.IGNORECASE))
    return next((name for name in names if type(held[name]) in (int, float) and held[name] == 0), "")


def _higher_order_operator(error: BaseException) -> str:
    """The operator over functions, such as ``cond``, in which an error was raised, or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [PurePath(f.filename) for f in frames if PurePath(f.filename).parent.name == "_higher_order_ops"]
    return next((file.stem for file in files if file.stem in _OVER_FUNCTIONS), "")


def _source_line(error: BaseException) -> str:
    """The innermost line of the person's own code, or of a library between it and torch, that ran in the capture."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (torch.__path__[0], _CAPTURE, contextlib.__file__)
    begun = next((place for place, f in enumerate(frames) if f.filename.startswith(_CAPTURE)), 0)
    outside = [f for f in frames[begun:] if not f.filename.startswith(ours) and f.line]
    if not outside:
        return ""
    last = outside[-1]
    return f"at {file_name(last.filename) or PurePath(last.filename).name}:{last.lineno} `{last.line}`"
