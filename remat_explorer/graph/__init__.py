"""The training graph: its data, its rules, its file, and views of it."""

from __future__ import annotations

from remat_explorer.graph.file import dump_graph, options_document, parse_options
from remat_explorer.graph.graph import Graph
from remat_explorer.graph.operator_words import (
    BATCHED_PRODUCTS,
    PRODUCTS,
    is_any_product,
    is_fused_attention,
    is_product,
    is_random,
    is_softmax,
    words,
)
from remat_explorer.graph.parts import Implementation, Operation, Phase, Value, operation
from remat_explorer.graph.repeated_blocks import RepeatedBlocks
from remat_explorer.graph.rules import MOST_IMPLEMENTATIONS, stands_in
from remat_explorer.graph.summary import Summary, cost_unit
