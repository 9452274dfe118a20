"""What a device can do, for the roofline: rates as published, never measured."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError


@dataclass(frozen=True)
class Device:
    """A roofline.

    Attributes:
        rate: float32 operations per second.
        bandwidth: memory bytes per second.
        launch: seconds that every operator takes at least.
        gpu: whether kernels for GPUs run there.
        capability: compute capability of a GPU; None where no certain one is meant.
    """

    name: str
    rate: float
    bandwidth: float
    launch: float
    gpu: bool = True
    capability: tuple[int, int] | None = None


DEVICES = {
    device.name: device
    for device in (
        # A desktop with 8 cores, AVX2 (2 x 8 fused multiply-adds a cycle at 3.5 GHz) and two channels of DDR4-3200.
        Device("cpu", 0.9e12, 51.2e9, 2e-6, gpu=False),
        # NVIDIA Tesla P100 datasheet (SXM2): 10.6 TFLOP/s in float32, 732 GB/s.
        Device("P100", 10.6e12, 732e9, 5e-6, capability=(6, 0)),
        # NVIDIA Tesla V100 datasheet (SXM2): 15.7 TFLOP/s in float32, 900 GB/s.
        Device("V100", 15.7e12, 900e9, 5e-6, capability=(7, 0)),
        # NVIDIA A100 datasheet (SXM4, 80 GB): 19.5 TFLOP/s in float32, 2039 GB/s.
        Device("A100", 19.5e12, 2039e9, 5e-6, capability=(8, 0)),
        # NVIDIA H100 datasheet (SXM5): 67 TFLOP/s in float32, 3.35 TB/s.
        Device("H100", 67e12, 3350e9, 5e-6, capability=(9, 0)),
    )
}


def find_device(name: str) -> Device:
    """The device of that name, in upper or lower case.

    Raises:
        UnknownNameError: if it is not in the table.

    >>> find_device("a100").bandwidth
    2039000000000.0
    """
    for listed, device in DEVICES.items():
        if listed.lower() == name.lower():
            return device
    raise UnknownNameError("device", name, DEVICES)
