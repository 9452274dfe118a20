"""Attention whose backward pass runs the forward pass again."""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.capture.alternatives.kernels import attention
from remat_explorer.capture.alternatives.site import Site, picks
from remat_explorer.capture.alternatives.ways import Way, step


def backward(site: Site) -> Iterator[Way]:
    """The gradients from query, key and value alone; output and sums of the forward pass are found again."""
    gradient, query, key, value, _, _, dropout, causal = site.args
    if dropout or not site.is_kept(query, key, value):
        return
    given = site.call.kwargs.get("attn_mask"), site.call.kwargs.get("scale")
    arguments = gradient, query, key, value, dropout, causal, *given
    one = step(site.call, attention.attention_gradient_recomputed, *arguments)
    yield Way("attention", "recomputed", site.call, (one, *picks(site)), launches=2)
