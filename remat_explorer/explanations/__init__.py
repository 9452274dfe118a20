"""Schedules in words: why a value is kept or recomputed, what an operation is, what is in memory where it is highest.

Pure functions of graph, schedule and plan, in plain English; no figure, no widget, no torch.
"""

from remat_explorer.explanations.differences import ScheduleDifference, largest_difference
from remat_explorer.explanations.operations import (
    OperationExplanation,
    dearest_recomputation,
    explain_operation,
    first_look,
    peak_look,
    recomputed,
    values_of_stages,
)
from remat_explorer.explanations.peak import Memory, PeakRow, StageSummary, alive_at, summarize_stage
from remat_explorer.explanations.values import Explanation, Life, explain_value, lives_of
from remat_explorer.explanations.wording import Mention, Words, plain

__all__ = [
    "Explanation",
    "Life",
    "Memory",
    "Mention",
    "OperationExplanation",
    "PeakRow",
    "ScheduleDifference",
    "StageSummary",
    "Words",
    "alive_at",
    "dearest_recomputation",
    "explain_operation",
    "explain_value",
    "first_look",
    "largest_difference",
    "lives_of",
    "peak_look",
    "plain",
    "recomputed",
    "summarize_stage",
    "values_of_stages",
]
