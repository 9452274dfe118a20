"""Which operators an operation is, by its name alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remat_explorer.graph.parts import Operation

PRODUCTS = frozenset({"linear", "mm", "matmul", "addmm", "convolution"})
"""Products with weights."""
BATCHED_PRODUCTS = frozenset({"bmm", "baddbmm"})
"""Products of two activations, as in attention that is written out."""
_RANDOM = re.compile(
    r"((feature_|alpha_|native_|fused_)*dropout|bernoulli|binomial|cauchy|exponential|geometric|(log_)?normal|"
    r"multinomial|poisson|rand(n|int|om|perm)?(_like)?|rrelu(_with_noise)?|sample_dirichlet|standard_gamma|uniform)"
    r"(_functional)?"
)
_FUSED_ATTENTION = re.compile(r"scaled_dot_product|flash_attention|efficient_attention|flex_attention|cudnn_attention")


def words(name: str) -> list[str]:
    """The operators in an operation's name; convolutions of all kinds are one.

    >>> words("features.3 conv2d + relu (2)"), words("native_dropout_1"), words("loss nll_loss_backward")
    (['convolution', 'relu'], ['native_dropout'], ['nll_loss_backward'])
    """
    joined = re.sub(r"(_\d+| \(\d+\))$", "", name).split(" + ")
    return [re.sub(r"^conv(olution|_transpose|\d).*", "convolution", part.split(" ")[-1]) for part in joined]


def is_product(name: str) -> bool:
    """Whether an operation multiplies by weights: a linear layer or a convolution.

    >>> is_product("head linear + gelu"), is_product("attention bmm")
    (True, False)
    """
    return not PRODUCTS.isdisjoint(words(name))


def is_any_product(name: str) -> bool:
    """Whether an operation multiplies matrices, by weights or by each other.

    >>> is_any_product("attention bmm + add"), is_any_product("attention safe_softmax")
    (True, False)
    """
    return not (PRODUCTS | BATCHED_PRODUCTS).isdisjoint(words(name))


def is_fused_attention(name: str) -> bool:
    """Whether an operation is attention in one kernel.

    >>> is_fused_attention("blocks.0.attention scaled_dot_product_flash_attention_for_cpu (2)")
    True
    """
    return any(_FUSED_ATTENTION.search(word) for word in words(name))


def is_softmax(name: str) -> bool:
    """Whether an operation is a softmax, with or without the logarithm's exclusion of masked rows.

    >>> is_softmax("attention safe_softmax"), is_softmax("log_softmax")
    (True, False)
    """
    return any(word.endswith("softmax") and "log" not in word for word in words(name))


def is_random(node: Operation) -> bool:
    """Whether an operation draws random numbers: by PyTorch's tags where it was captured, else by its name.

    >>> from remat_explorer.graph import operation
    >>> is_random(operation("blocks.0.dropout dropout (2)", "forward", [], [0], 1.0))
    True
    >>> is_random(operation("native_dropout_backward", "backward", [], [0], 1.0))
    False
    """
    if node.details is not None and node.details.calls:
        return node.details.random
    return any(_RANDOM.fullmatch(word.lstrip("_")) for word in words(node.name))
