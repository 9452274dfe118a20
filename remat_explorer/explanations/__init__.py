"""Schedules in words: why a value is kept or recomputed, what an operation is, what is in memory where it is highest.

Pure functions of graph, schedule and plan, in plain English; no figure, no widget, no torch.
"""

from remat_explorer.explanations.choices import (
    EXPLAINED,
    OWN,
    explain_choice,
    is_exact,
    kinds_in,
    kinds_of_codes,
    kinds_used,
    label_of,
    statement_text,
)
from remat_explorer.explanations.differences import ScheduleDifference, largest_difference
from remat_explorer.explanations.operations import (
    OperationExplanation,
    dearest_recomputation,
    explain_operation,
    first_look,
    line_of,
    lines_of,
    peak_look,
    recomputed,
    uses_of_lines,
    values_of_stages,
)
from remat_explorer.explanations.peak import Memory, PeakRow, StageSummary, alive_at, summarize_stage
from remat_explorer.explanations.values import Explanation, Lifetime, explain_value, in_vain_text, kept_bytes, lives_of
from remat_explorer.explanations.wording import (
    Mention,
    Words,
    cost_text,
    count,
    listed,
    persistent_kind,
    plain,
)
