"""The tables for CUDA against PyTorch's own dispatch: with FakeTensors on CUDA, which its build for CUDA takes forward.

Without a device that build has no backward pass of such tensors, and chooses no attention but "math".
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture.cuda_target import CudaTarget, as_on_cuda
from remat_explorer.capture.eager_kernels import eager_kernels
from remat_explorer.capture.fake_tensors import kernel_layout_mode
from remat_explorer.capture.inputs_and_outputs import map_tensors
from tests.capture.unusual_models import UNUSUAL
from tests.runtime.kinds_of_models import KINDS, Case

pytestmark = pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="torch is built without CUDA")
aten = torch.ops.aten
UNREAD = (  # what batch normalization by cuDNN has beside itself, and no graph: nobody reads it
    aten.empty.memory_format,
    aten.new_zeros.default,
)
LAYERS: dict[str, Callable[[], Case]] = {
    "LSTM": lambda: Case(nn.LSTM(8, 16, 2, dropout=0.1, proj_size=4, batch_first=True), (torch.ones(5, 3, 8),)),
    "LSTM without biases": lambda: Case(nn.LSTM(8, 16, bias=False, bidirectional=True), (torch.ones(5, 3, 8),)),
    "GRU": lambda: Case(nn.GRU(8, 16, 2, dropout=0.1, bidirectional=True), (torch.ones(5, 3, 8),)),
    "RNN": lambda: Case(nn.RNN(8, 16, nonlinearity="relu", batch_first=True), (torch.ones(5, 3, 8),)),
    "LSTM cell": lambda: Case(nn.LSTMCell(8, 16), (torch.ones(3, 8),)),
    "GRU cell": lambda: Case(nn.GRUCell(8, 16), (torch.ones(3, 8),)),
    "half": lambda: Case(convolutions().half(), (torch.ones(2, 3, 8, 8).half(),)),
    "evaluation": lambda: Case(convolutions().eval(), (torch.ones(2, 3, 8, 8),)),
    "evaluation in half": lambda: Case(convolutions().half().eval(), (torch.ones(2, 3, 8, 8).half(),)),
    "channels last": lambda: in_last(convolutions(), torch.ones(2, 3, 8, 8)),
    "double and channels last": lambda: in_last(convolutions().double(), torch.ones(2, 3, 8, 8).double()),
    "encoder": lambda: Case(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (torch.ones(2, 9, 32),)),
    "encoder in half": lambda: Case(
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).bfloat16(), (torch.ones(2, 9, 32).bfloat16(),)
    ),
}
CASES = {**LAYERS, **UNUSUAL, **KINDS}


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1, groups=8), nn.Dropout(0.1)
    )


def in_last(model: nn.Module, x: torch.Tensor) -> Case:
    anything: Any = model  # types of torch know no memory format for models
    return Case(anything.to(memory_format=torch.channels_last), (x.to(memory_format=torch.channels_last),))


class Recorded(TorchDispatchMode):
    """Lists the operators that run, with shape, strides, type and storage of what they give; views apart.

    Views run no kernel, and versions of PyTorch differ in when they take those of a recurrent layer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Any] = []
        self.views: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func not in UNREAD and func.namespace != "prim":
            tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
            name = str(func).replace("transpose_.default", "transpose.int")
            call = name, [(t.shape, t.stride(), t.dtype, t.untyped_storage().nbytes()) for t in tensors]
            if is_view(func):
                self.views[str(call)] += 1
            else:
                self.kernels.append(call)
        return results


def is_view(operator: Any) -> bool:
    """Whether all that it gives are views of what it is given."""
    aliases = [returned.alias_info for returned in operator._schema.returns]
    only_read = all(alias is not None and not alias.is_write for alias in aliases)
    return torch.Tag.inplace_view in operator.tags or (bool(aliases) and only_read)


def calls_of(case: Case, target: CudaTarget | None) -> tuple[list[Any], Counter[str]]:
    """The forward pass by the tables for a target, or by PyTorch's dispatch for CUDA."""
    mode, recorded = kernel_layout_mode(target is not None), Recorded()

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu" if target else "cuda"
            )

    for module in case.model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = fake(tensor)  # type: ignore[assignment]
        if isinstance(module, nn.RNNBase):
            module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
    args, kwargs = map_tensors(fake, (tuple(case.args), dict(case.kwargs or {})))
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if not torch.cuda.is_available():
            stack.enter_context(sdpa_kernel([SDPBackend.MATH]))
        stack.enter_context(eager_kernels(target))
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(mode)
        stack.enter_context(recorded)
        if target is not None:
            stack.enter_context(as_on_cuda())
        case.model(*args, **kwargs)
    return recorded.kernels, recorded.views


@pytest.mark.parametrize("kind", CASES)
def test_a_forward_pass_has_the_operations_and_results_of_pytorchs_own_dispatch(kind):
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (8, 0)
    torch.manual_seed(0)
    try:
        theirs = calls_of(CASES[kind](), None)
    except RuntimeError as error:  # of a model that mixes devices, or needs a gradient
        pytest.skip(f"PyTorch does not run it there: {str(error).splitlines()[0]}")
    torch.manual_seed(0)
    assert calls_of(CASES[kind](), CudaTarget(capability)) == theirs
