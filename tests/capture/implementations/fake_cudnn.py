"""A stand-in for cuDNN's frontend: the calls that are documented, in the order that they need, computed by PyTorch.

A plan is an engine with a knob, a workspace, and a way to fail or not; all of them give the same numbers.
"""

import enum
from types import ModuleType
from typing import Any

import torch

aten = torch.ops.aten

data_type: Any = enum.Enum("data_type", ["FLOAT", "HALF", "BFLOAT16"])
heur_mode: Any = enum.Enum("heur_mode", ["A", "B", "FALLBACK"])
knob_type: Any = enum.Enum("knob_type", ["TILE_M", "STAGES"])
NOTES = ["TENSOR_CORE", "DOWN_CONVERT_INPUTS", "NONDETERMINISTIC", "WINOGRAD_TILE_4x4", "REDUCED_PRECISION_REDUCTION"]
numerical_note: Any = enum.Enum("numerical_note", NOTES)
PLANS = [  # engine, knobs, workspace, notes
    (0, {knob_type.TILE_M: 8}, 4096, []),
    (1, {}, 0, []),
    (2, {knob_type.TILE_M: 4, knob_type.STAGES: 2}, 1 << 60, []),  # more than there is
    (3, {}, 64, [numerical_note.NONDETERMINISTIC]),
    (4, {}, 128, [numerical_note.TENSOR_CORE]),
    (5, {knob_type.STAGES: 1}, 256, []),  # cannot be built
]


class Tensor:
    def __init__(self, dim: list[int] | None = None, stride: list[int] | None = None) -> None:
        self.dim, self.stride, self.output, self.data_type = dim, stride, False, None

    def __getattr__(self, name: str) -> Any:
        """The setters of those four, which give the tensor itself."""
        field = name.removeprefix("set_")
        if field == name or field not in vars(self):
            raise AttributeError(name)
        return lambda value: vars(self).update({field: value}) or self


class Graph:
    def __init__(self, handle: Any, name: str, **types: Any) -> None:
        assert set(types) == {"io_data_type", "intermediate_data_type", "compute_data_type"}
        self.state, self.plans, self.built = "open", [], set()
        self.operation: tuple[str, Tensor, Tensor, Tensor, dict[str, Any]] | None = None

    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: Any) -> Tensor:
        return Tensor(dim, stride)

    def _add(self, kind: str, first: Tensor, second: Tensor, setting: dict[str, Any]) -> Tensor:
        self.operation = kind, first, second, Tensor(), setting
        return self.operation[3]

    def conv_fprop(self, *, image: Tensor, weight: Tensor, **setting: Any) -> Tensor:
        return self._add("fprop", image, weight, setting)

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, **setting: Any) -> Tensor:
        return self._add("dgrad", loss, filter, setting)

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, **setting: Any) -> Tensor:
        return self._add("wgrad", image, loss, setting)

    def validate(self) -> None:
        assert self.operation is not None
        assert all(vars(self.operation[3]).values())
        self.state = "validated"

    def build_operation_graph(self) -> None:
        assert self.state == "validated"
        self.state = "lowered"

    def create_execution_plans(self, modes: list[Any]) -> None:
        assert self.state == "lowered"
        assert modes == [heur_mode.A, heur_mode.B, heur_mode.FALLBACK]
        self.plans, self.state = list(PLANS), "planned"

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        self.plans = [plan for plan in self.plans if not set(plan[3]) & set(notes)]

    def check_support(self) -> None:
        assert self.state == "planned"
        if self.operation and self.operation[1].dim and self.operation[1].dim[1] % 2:
            raise RuntimeError("no engine for an odd number of channels")

    def create_execution_plan(self, engine: int, knobs: dict[Any, int]) -> None:
        assert self.state == "lowered"
        found = [plan for plan in PLANS if plan[:2] == (engine, knobs)]
        if not found:
            raise RuntimeError("no such engine")
        self.plans += found

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def build_plan_at_index(self, index: int) -> None:
        if self.plans[index][0] == 5:
            raise RuntimeError("not supported on this device")
        self.built.add(index)

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[Any, int]]:
        return self.plans[index][:2]

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.plans[index][2]

    def get_plan_name_at_index(self, index: int) -> str:
        engine, knobs = self.plans[index][:2]
        return f"eng{engine}" + "".join(f"_k{knob.value}={value}" for knob, value in knobs.items())

    def execute_plan_at_index(self, pack: dict[Tensor, torch.Tensor], room: torch.Tensor, index: int, handle: Any):
        assert index in self.built
        assert room.numel() >= self.plans[index][2]
        assert self.operation is not None
        kind, first, second, made, setting = self.operation
        for tensor, data in pack.items():
            assert (list(data.shape), list(data.stride())) == (tensor.dim, tensor.stride)
        a, b, out = pack[first], pack[second], pack[made]
        rest = setting["stride"], setting["padding"], setting["dilation"], False, [0] * len(setting["stride"])
        if kind == "fprop":
            out.copy_(aten.convolution(a, b, None, *rest, a.shape[1] // b.shape[1]))
        elif kind == "dgrad":
            given = a, torch.empty_like(out), b, None, *rest, out.shape[1] // b.shape[1]
            out.copy_(aten.convolution_backward(*given, [True, False, False])[0])
        else:
            given = b, a, torch.empty_like(out), None, *rest, a.shape[1] // out.shape[1]
            out.copy_(aten.convolution_backward(*given, [False, True, False])[1])


def module() -> Any:
    """The stand-in, as a module that can take the place of the package."""
    made: Any = ModuleType("cudnn")
    vars(made).update({name: globals()[name] for name in ("data_type", "heur_mode", "knob_type", "numerical_note")})
    made.pygraph = Graph
    return made
