"""ReLU and ReLU6 backward from the input or the output, or from a mask of one bit an entry.

The backward kernels of PyTorch choose between the gradient and 0; so do these. A product with a mask would make NaN
of an infinite gradient. Bits lie in the order of the storage: the gradient must have the strides of the activation.

Eight booleans of a byte each are one 64-bit word here; one multiplication gathers their lowest bits in the highest
byte, another spreads a byte over eight. On CUDA, Triton kernels make the same bytes where Triton is installed: byte i
of a mask holds entries 8 i to 8 i + 7, so four bytes, read as one 32-bit word on a machine that stores the lowest byte
first, hold 32 entries in order.

Source: MONeT (Shah et al., ICLR 2021), appendix C: output-activated, and intermediate-activated by one bit an entry;
Gist (Jain et al., ISCA 2018), section 4.1, the binarized mask of ReLU.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import torch
from torch.fx import Node
from torch.nn import functional

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, Surroundings
from remat_explorer.capture.implementations.chunks import CHUNK, chunks, flat
from remat_explorer.capture.in_place import Overwriting
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
_GATHER = 0x0102040810204080  # brings the lowest bit of byte j to bit 56 + j
_SPREAD = 0x0101010101010101  # a byte eight times
_PICK = 0x8040201008040201 - (1 << 64)  # bit j of byte j, as a signed number
_WEIGHTS = (1, 2, 4, 8, 16, 32, 64, 128)
BYTES = 128  # of a mask, written by one program
ENTRIES = 1024  # of a gradient, written by one program
HAS_TRITON = importlib.util.find_spec("triton") is not None
FORWARD = {
    aten.threshold_backward.default: aten.relu.default,
    aten.hardtanh_backward.default: aten.hardtanh.default,
}


def from_other_operand(site: Site) -> Iterator[CapturedImplementation]:
    """The backward of ReLU from the input instead of the output, of hardtanh from either: they give the same."""
    gradient, operand, *limits = site.args
    for other in _operands(site):
        if other is not operand and site.is_kept(other) and site.same_layout(operand, other):
            arguments = gradient, other, *limits
            target = site.call.target
            yield CapturedImplementation(
                "activations",
                "from the output" if other in _results(site) else "from the input",
                site.call,
                (step(site.call, target, *arguments),),  # type: ignore[arg-type]
                over=gradient,
                steps_over=(step(site.call, Overwriting(target), *arguments),),  # type: ignore[arg-type]
            )


def from_bits(site: Site) -> Iterator[CapturedImplementation]:
    """The backward of ReLU or hardtanh from a mask in bits, which an optional operation makes of input or output."""
    gradient, operand = site.args[:2]
    kept = [node for node in _operands(site) if site.is_kept(node) and site.same_layout(operand, node)]
    if not kept or not site.same_layout(gradient, operand) or is_free(site, operand):
        return
    mask = _activation_mask(site, operand, kept)
    yield CapturedImplementation(
        "masks",
        "from bits",
        site.call,
        (step(site.call, masked_gradient, gradient, mask),),
        over=gradient,
        steps_over=(step(site.call, masked_gradient_in_place, gradient, mask),),
    )


def _activation_mask(site: Site, operand: Node, kept: list[Node]) -> Node:
    """The node of the mask, with the optional operation that makes it from any of ``kept``."""
    scene, limits = site.scene, site.args[2:]
    key = ("bits", frozenset(kept), limits)
    if key in scene.made:
        return scene.made[key]
    is_relu = site.call.target is aten.threshold_backward.default
    kernel, rest = (relu_bits, ()) if is_relu else (hardtanh_bits, limits)
    latest = max(kept, key=scene.found.order.__getitem__)
    made_by = max(
        (scene.producer[s] for s in map(scene.found.of_node.__getitem__, kept) if not s.resident),
        key=scene.found.operations.index,
    )
    mask = new_mask(scene, latest, kernel, (operand, *rest))
    draft = scene.add_optional(mask, (operand,))
    draft.ways += [
        CapturedImplementation("masks", "from the input", mask, (step(mask, kernel, other, *rest),))
        for other in kept
        if other is not operand
    ]
    scene.optional.append((made_by, draft))
    scene.made[key] = mask
    return mask


def new_mask(scene: Surroundings, after: Node, kernel, arguments) -> Node:
    fake = scene.fake(arguments[0])
    packed = fake.new_empty((mask_bytes(fake.numel()),), dtype=torch.uint8)
    return scene.add_value(after, kernel, arguments, packed, "mask")


def is_free(site: Site, operand: Node) -> bool:
    """Whether the operand stays in memory anyway, so that a mask of it would save nothing."""
    storage = site.scene.found.of_node[operand]
    return storage.resident or storage.persistent


def _operands(site: Site) -> list[Node]:
    """The operand of the backward call, and what else gives the same: the input of a result, the result of an input."""
    operand = site.args[1]
    forward = FORWARD[site.call.target]  # type: ignore[index]
    if operand.target is forward and _limits(operand) == _limits_of_backward(site):
        return [operand, operand.args[0]]
    return [operand, *_results(site)]


def _results(site: Site) -> list[Node]:
    """The calls whose input, or result, the backward call reads."""
    operand = site.args[1]
    if operand.target is FORWARD[site.call.target]:  # type: ignore[index]
        return [operand]
    forward = FORWARD[site.call.target]  # type: ignore[index]
    return [n for n in operand.users if n.target is forward and _limits(n) == _limits_of_backward(site)]


def _limits(call: Node) -> tuple[float, ...]:
    if call.target is aten.relu.default:
        return ()
    least, most = (*call.args[1:], *(-1.0, 1.0)[len(call.args) - 1 :])
    return float(least), float(most)  # type: ignore[arg-type]


def _limits_of_backward(site: Site) -> tuple[float, ...]:
    if site.call.target is aten.threshold_backward.default:
        return () if site.args[2] == 0 else (float("nan"),)
    return tuple(map(float, site.args[2:]))


def mask_bytes(entries: int) -> int:
    """Bytes of a mask of that many entries."""
    return (entries + 7) // 8


def pack(mask: torch.Tensor, out: torch.Tensor) -> None:
    """Write a row of n booleans as bits, uint8: entry 8 i + j becomes bit j of byte i. Bits after the last entry are 0.

    >>> packed = torch.empty(2, dtype=torch.uint8)
    >>> pack(torch.tensor([True, False, True, False, False, False, False, False, True]), packed)
    >>> packed.tolist()
    [5, 1]
    """
    whole = mask.numel() // 8
    if whole:
        # the product wraps around and the shift keeps its sign; the lowest byte of the result is right all the same
        words = mask[: 8 * whole].view(torch.int64) * _GATHER
        out[:whole].copy_(words.bitwise_right_shift_(56))
    last = mask[8 * whole :]
    if not last.numel():
        return
    if last.device.type != "cpu":  # a list would have to wait for the device
        pack(functional.pad(last, (0, 8 - last.numel())), out[whole:])
    else:
        rest = last.tolist()
        out[whole] = sum(weight for weight, bit in zip(_WEIGHTS, rest, strict=False) if bit)


def unpack(packed: torch.Tensor, out: torch.Tensor) -> None:
    """Write the n bytes that `pack` gave as 8 n booleans, contiguous."""
    words = out.view(torch.int64)
    words.copy_(packed)
    words.mul_(_SPREAD).bitwise_and_(_PICK)
    out.view(torch.uint8).ne_(0)


def factors(packed: torch.Tensor, like: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """The bits of a mask as 0 and 1, typed as ``like``, a chunk at a time, each in the place of the one before."""
    size = min(CHUNK, like.numel())
    truth = torch.empty(8 * mask_bytes(size), dtype=torch.bool, device=like.device)
    factor = torch.empty(size, dtype=like.dtype, device=like.device)
    for part in chunks(like.numel()):
        count, bits = part.stop - part.start, packed[part.start // 8 : mask_bytes(part.stop)]
        unpack(bits, truth[: 8 * bits.numel()])
        yield part, factor[:count].copy_(truth[:count])


def packed_mask(mask: torch.Tensor) -> torch.Tensor:
    """The bits of a whole dense mask, in the order of its storage."""
    row = flat(mask)
    packed = torch.empty(mask_bytes(row.numel()), dtype=torch.uint8, device=mask.device)
    for part in chunks(row.numel()):
        pack(row[part], packed[part.start // 8 : mask_bytes(part.stop)])
    return packed


if HAS_TRITON:  # pragma: no cover (compiled for a GPU, or interpreted)
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]

    @triton.jit
    def _pack(source, packed, entries, least, most, bounded: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
        place = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
        bit = tl.arange(0, 8)
        entry = place[:, None] * 8 + bit[None, :]
        inside = entry < entries
        x = tl.load(source + entry, mask=inside, other=0.0)
        if source.dtype.element_ty.primitive_bitwidth == 16:  # Triton 3.9 interprets bfloat16 as whole numbers
            x = x.to(tl.float32)
        if bounded:  # noqa: SIM108 (decided when the kernel is compiled)
            truth = (x > least) & (x < most)
        else:
            truth = ~(x <= 0)  # true of NaN
        values = tl.where(truth & inside, 1, 0).to(tl.int32) << bit[None, :]
        tl.store(packed + place, tl.sum(values, axis=1).to(tl.uint8), mask=place * 8 < entries)

    @triton.jit
    def _mask(gradient, packed, result, entries, width: tl.constexpr):  # type: ignore[no-untyped-def]
        entry = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
        inside = entry < entries
        byte = tl.load(packed + (entry >> 3), mask=inside, other=0).to(tl.int32)
        keep = ((byte >> (entry & 7).to(tl.int32)) & 1) != 0
        g = tl.load(gradient + entry, mask=inside, other=0.0)
        tl.store(result + entry, tl.where(keep, g, 0.0).to(result.dtype.element_ty), mask=inside)


def runs_in_triton(tensor: torch.Tensor) -> bool:
    """Whether these kernels can run on a tensor: it is on a CUDA device, and Triton is there."""
    return HAS_TRITON and tensor.device.type == "cuda"


def _packed_by_triton(activation: torch.Tensor, limits: tuple[float, float] | None) -> torch.Tensor:
    """`relu_bits`, or with limits `hardtanh_bits`, of a dense tensor on a CUDA device."""
    row = flat(activation)
    packed = torch.empty(mask_bytes(row.numel()), dtype=torch.uint8, device=row.device)
    least, most = limits or (0.0, 0.0)
    grid = ((packed.numel() + BYTES - 1) // BYTES,)
    if row.numel():
        _pack[grid](row, packed, row.numel(), least, most, limits is not None, BYTES)  # type: ignore[index]
    return packed


def _masked_by_triton(gradient: torch.Tensor, packed: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write the gradient where the bit is 1, else 0, to ``out``, which may be ``gradient``."""
    entries = gradient.numel()
    if entries:
        grid = ((entries + ENTRIES - 1) // ENTRIES,)
        _mask[grid](flat(gradient), packed, flat(out), entries, ENTRIES)  # type: ignore[index]
    return out


def relu_bits(activation: torch.Tensor) -> torch.Tensor:
    """One bit an entry: not (x <= 0), for the input or the output of a ReLU, which give the same.

    Bit-equal: of NaN it is 1, and the gradient passes, as in `threshold_backward`.
    """
    if runs_in_triton(activation):
        return _packed_by_triton(activation, None)
    row, packed, mask = _prepared(activation)
    for part in chunks(row.numel()):
        truth = mask[: part.stop - part.start]
        torch.le(row[part], 0, out=truth)
        pack(truth.logical_not_(), packed[part.start // 8 : mask_bytes(part.stop)])
    return packed


def hardtanh_bits(activation: torch.Tensor, least: float, most: float) -> torch.Tensor:
    """One bit an entry: least < x < most, for the input or the output of a hardtanh; ReLU6 has the limits 0 and 6.

    Bit-equal but for NaN, of which it is 0. PyTorch's kernel is not of one mind there: on the CPU its vectors drop the
    gradient, and what is left over after the last whole vector passes it.
    """
    if runs_in_triton(activation):
        return _packed_by_triton(activation, (least, most))
    row, packed, mask = _prepared(activation)
    below = torch.empty_like(mask)
    for part in chunks(row.numel()):
        truth, other = mask[: part.stop - part.start], below[: part.stop - part.start]
        torch.gt(row[part], least, out=truth)
        torch.lt(row[part], most, out=other)
        pack(truth.logical_and_(other), packed[part.start // 8 : mask_bytes(part.stop)])
    return packed


def _prepared(activation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    row = flat(activation)
    packed = torch.empty(mask_bytes(row.numel()), dtype=torch.uint8, device=row.device)
    return row, packed, torch.empty(min(CHUNK, row.numel()), dtype=torch.bool, device=row.device)


def masked_gradient(gradient: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """The gradient where the bit is 1, else 0: backward of ReLU and hardtanh. Bit-equal, NaN and infinities included.

    It is dense, with the strides of the activation.
    """
    return _masked(gradient, packed, torch.empty_like(gradient))


def masked_gradient_in_place(gradient: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """As `masked_gradient`, over ``gradient``."""
    return _masked(gradient, packed, gradient)


def _masked(gradient: torch.Tensor, packed: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """`threshold_backward` with the bits as activation, chunk by chunk; `torch.where` is many times slower."""
    source, target = flat(gradient), flat(out)
    if packed.numel() != mask_bytes(source.numel()):
        raise ExecutionError(f"a mask of {packed.numel()} bytes does not belong to {source.numel()} entries")
    if runs_in_triton(gradient):
        return _masked_by_triton(gradient, packed, out)
    for part, factor in factors(packed, source):
        aten.threshold_backward.grad_input(source[part], factor, 0, grad_input=target[part])
    return out
