"""Fingerprints of tensors, by which a tensor of one run is looked for in another without keeping either."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture.propagation import storage_key, tensors_of

UNFILLED = "empty"  # in the names of the operators that give memory as it is
AT_A_TIME = 1 << 20  # entries copied to be read
Form = tuple[torch.dtype, torch.Size]
Fingerprint = tuple[torch.dtype, torch.Size, bytes]


def form_of(tensor: torch.Tensor) -> Form:
    """Dtype and shape."""
    return tensor.dtype, tensor.shape


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """The same for tensors of one dtype and shape whose entries are equal, however they lie in memory.

    Zeros of both signs are equal, and so are all entries that are no number, as `sizes.same` has it. Different
    entries give different fingerprints, but for a chance of one in 2**128.

    >>> x = torch.arange(6.0).view(2, 3)
    >>> fingerprint(x) == fingerprint(x.t().contiguous().t()), fingerprint(x) == fingerprint(x.view(3, 2))
    (True, False)
    >>> fingerprint(torch.tensor([0.0])) == fingerprint(torch.tensor([-0.0])), fingerprint(x) == fingerprint(x + 1)
    (True, False)
    """
    content = hashlib.blake2b(digest_size=16)
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    for part in plain.reshape(-1).split(AT_A_TIME):
        if part.is_floating_point() and part.element_size() > 1:  # what has one byte cannot be added to
            part = (part + 0).masked_fill_(part.isnan(), float("nan"))
        content.update(part.contiguous().cpu().view(torch.uint8).numpy().data)
    return *form_of(tensor), content.digest()


class Seen(TorchDispatchMode):
    """Fingerprints of every tensor that an operator takes or gives while this is on, in the backward pass, too.

    What an operator takes is read before and after it, since it may write there. Memory that nobody wrote to is not
    read: it may still hold what another run left there.

    Args:
        forms: only tensors of these are read.

    Attributes:
        fingerprints: what was seen.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with Seen({form_of(x)}) as seen:
    ...     (x.detach() * 3).add_(1)
    tensor([4., 4.])
    >>> [fingerprint(torch.full((2,), float(n))) in seen.fingerprints for n in range(1, 6)]
    [True, False, True, True, False]
    """

    def __init__(self, forms: Collection[Form]) -> None:
        super().__init__()
        self._forms = forms
        self._unfilled: set[int] = set()  # storages
        self.fingerprints: set[Fingerprint] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = tensors_of((args, kwargs))
        self._look_at(taken)
        before = {storage_key(tensor) for tensor in taken}
        result = func(*args, **(kwargs or {}))
        given = tensors_of(result)
        new = {storage_key(tensor) for tensor in given} - before
        if is_unfilled(func):
            self._unfilled |= new
        else:
            self._unfilled -= new | before if func._schema.is_mutable else new
        self._look_at([*taken, *given] if func._schema.is_mutable else given)
        return result

    def _look_at(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if form_of(tensor) in self._forms and storage_key(tensor) not in self._unfilled:
                self.fingerprints.add(fingerprint(tensor))


def is_unfilled(target: Any) -> bool:
    """Whether an operator gives memory without writing to it.

    >>> is_unfilled(torch.ops.aten.new_empty.default), is_unfilled(torch.ops.aten.zeros_like.default)
    (True, False)
    """
    return UNFILLED in str(getattr(target, "__name__", target))
