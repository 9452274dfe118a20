"""What a device can do: rates as published, never measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from remat_explorer.errors import UnknownNameError

ROOFLINE = "-roofline"  # after a GPU's name: its costs as a plain roofline


@dataclass(frozen=True)
class Device:
    """The published rates of a device, and how costs follow from them."""

    name: str
    rate: float  # float32 operations per second, without tensor cores
    bandwidth: float  # memory bytes per second
    launch: float  # seconds that every operator takes at least
    gpu: bool = True  # whether kernels for GPUs run there
    capability: tuple[int, int] | None = None  # None where no certain one is meant
    tensor: Mapping[str, float] = field(default_factory=dict)  # of tensor cores, dense: "tf32", "float16", "bfloat16"
    kernels: bool = False  # costs of kernels (`predicted_costs`), not of a roofline

    def rate_of(self, dtype: str, convolution: bool) -> float:
        """Operations per second of matrix products or convolutions of a type, by PyTorch's default settings.

        Convolutions of float32 may run in TF32 (`torch.backends.cudnn.allow_tf32` is True), matrix products not
        (`torch.backends.cuda.matmul.allow_tf32` is False). A type without tensor cores runs at the rate of float32.
        """
        name = ("tf32" if convolution else "") if dtype == "float32" else dtype
        return max(self.rate, self.tensor.get(name, 0.0))


GPUS = (
    # NVIDIA Tesla P100 datasheet (SXM2): 10.6 TFLOP/s in float32, 732 GB/s. Its 21.2 TFLOP/s in float16 also add up
    # in float16, which PyTorch does not.
    Device("P100", 10.6e12, 732e9, 5e-6, capability=(6, 0)),
    # NVIDIA Tesla V100 datasheet (SXM2): 15.7 TFLOP/s in float32, 125 TFLOP/s on tensor cores, 900 GB/s.
    Device("V100", 15.7e12, 900e9, 5e-6, capability=(7, 0), tensor={"float16": 125e12}),
    # NVIDIA A100 datasheet (SXM4, 80 GB): 19.5 TFLOP/s in float32, 156 in TF32, 312 in float16 and bfloat16, 2039 GB/s.
    Device(
        "A100", 19.5e12, 2039e9, 5e-6, capability=(8, 0), tensor={"tf32": 156e12, "float16": 312e12, "bfloat16": 312e12}
    ),
    # NVIDIA H100 datasheet (SXM5): 67 TFLOP/s in float32, 3.35 TB/s; 989 in TF32 and 1979 in float16 and bfloat16 are
    # with sparsity, which doubles them.
    Device(
        "H100",
        67e12,
        3350e9,
        5e-6,
        capability=(9, 0),
        tensor={"tf32": 494.5e12, "float16": 989.5e12, "bfloat16": 989.5e12},
    ),
    # NVIDIA L4 datasheet: 30.3 TFLOP/s in float32, 300 GB/s; 120 in TF32 and 242 in float16 and bfloat16 are with
    # sparsity.
    Device(
        "L4", 30.3e12, 300e9, 5e-6, capability=(8, 9), tensor={"tf32": 60e12, "float16": 121e12, "bfloat16": 121e12}
    ),
    # NVIDIA Ada GPU Architecture whitepaper, GeForce RTX 4090: 82.6 TFLOP/s in float32 and in TF32, 165.2 in float16
    # and bfloat16 that add up in float32, 1008 GB/s.
    Device(
        "RTX4090",
        82.6e12,
        1008e9,
        5e-6,
        capability=(8, 9),
        tensor={"tf32": 82.6e12, "float16": 165.2e12, "bfloat16": 165.2e12},
    ),
)
DEVICES = {
    device.name: device
    for device in (
        # A desktop with 8 cores, AVX2 (2 x 8 fused multiply-adds a cycle at 3.5 GHz) and two channels of DDR4-3200.
        Device("cpu", 0.9e12, 51.2e9, 2e-6, gpu=False),
        *(replace(gpu, kernels=True) for gpu in GPUS),
        *(replace(gpu, name=f"{gpu.name}{ROOFLINE}", tensor={}) for gpu in GPUS),
    )
}


def find_device(name: str) -> Device:
    """The device of that name, in upper or lower case; "P100-roofline" is the P100 with costs as a plain roofline.

    Raises:
        UnknownNameError: if it is not in the table.

    >>> find_device("a100").bandwidth
    2039000000000.0
    >>> find_device("a100").kernels, find_device("a100-roofline").kernels
    (True, False)
    """
    for listed, device in DEVICES.items():
        if listed.lower() == name.lower():
            return device
    raise UnknownNameError("device", name, DEVICES)
