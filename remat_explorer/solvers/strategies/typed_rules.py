"""The rules that people type by hand, as strategies: of the settings of each, the cheapest that keeps the budget.

Each is the schedule that PyTorch would run (`remat_explorer.solvers.framework_rules.regions`) on the layers that are
found (`remat_explorer.solvers.framework_rules.layers`). Where no setting keeps the budget there is no schedule.

Sources: transformers 5.23, `gradient_checkpointing_enable` and its ``every_n_layers`` (pull request 48200): the layers
whose number n divides, from 0. Megatron-LM: ``--recompute-granularity`` full with ``--recompute-method`` block, and
selective, for which Korthikanti et al., Reducing activation recomputation in large transformer models (MLSys 2023),
section 5. torchtitan: selective activation checkpointing by operators, which saves the results of operators that are
compute intensive but for every second matrix product; products of two activations run again. That rule is about matrix
products with weights. Here convolutions count as such, too, so that it says something about networks of convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remat_explorer.solvers.framework_rules import typed_rules
from remat_explorer.solvers.heuristics.segmentation import within_budget
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support


def _method(
    candidates: Callable[..., Iterator[Candidate]], summary: str, source: str, symbol: str, knob: Knob | None = None
) -> Method:
    return Method(
        within_budget(candidates),
        summary,
        source,
        general_graphs=Support.YES,
        cost_aware=Support.NO,
        memory_aware=Support.NO,
        knob=knob,
        candidates=candidates,
        symbol=symbol,
        background_sweep=BackgroundSweep.NEVER,
    )


FULL = _method(
    typed_rules.full,
    "a checkpoint around every layer",
    "gradient_checkpointing_enable of transformers, and the full mode of most frameworks",
    "triangle-ne",
)
EVERY_N = _method(
    typed_rules.every_n_layers,
    "a checkpoint around every n-th layer",
    "transformers, gradient_checkpointing_enable(every_n_layers=...)",
    "triangle-se",
    Knob("every_n_layers", "one in how many layers is checkpointed", typed_rules.layer_counts),
)
FIRST = _method(
    typed_rules.first_layers,
    "a checkpoint around each of the first n layers",
    "Megatron-LM, --recompute-method block",
    "triangle-sw",
    Knob("recompute_num_layers", "how many layers are checkpointed, from the first on", typed_rules.layer_counts),
)
ATTENTION = _method(
    typed_rules.attention_only,
    "a checkpoint around the attention of every layer, projections included",
    "typed by hand",
    "triangle-nw",
)
SELECTIVE = _method(
    typed_rules.attention_core_only,
    "a checkpoint around the core of every attention: large values that are cheap to compute again",
    "Korthikanti et al. 2023, section 5; Megatron-LM, --recompute-granularity selective",
    "hexagon2",
)
SECOND_MATMUL = _method(
    typed_rules.save_second_matmul,
    "a checkpoint around every layer that saves every second matrix product and fused attention",
    "torchtitan, selective activation checkpointing by operators",
    "arrow-up",
)
