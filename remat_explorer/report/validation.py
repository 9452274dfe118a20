"""Predicted and measured, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_explorer.quantities import format_bytes, format_overhead, format_seconds
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.html import facts, paragraph, table

if TYPE_CHECKING:
    from remat_explorer.runtime.measurement import Measurement

NOT_EXECUTED = "This schedule was not executed: peaks and costs in this report are predictions."


def validation(contents: ReportContents) -> str:
    """What was promised beside what came of it."""
    measured = contents.measurement
    if measured is None:
        return paragraph(NOT_EXECUTED) if contents.solution.schedule else ""
    overhead = measured.overhead_text
    rows = [
        ("peak", format_bytes(measured.predicted_peak), format_bytes(measured.peak), f"{100 * measured.error:+.3f} %"),
        (
            "peak without resident bytes",
            format_bytes(measured.predicted_peak - measured.resident_bytes),
            format_bytes(measured.peak - measured.resident_bytes),
            f"{100 * measured.dynamic_error:+.3f} %",
        ),
        ("peak of the generated code", "", format_bytes(measured.generated_peak), ""),
        *_reserved(measured),
        ("overhead", format_overhead(measured.predicted_overhead), overhead, ""),
    ]
    verdict = "kept to" if measured.within_budget else "EXCEEDED"
    times = [
        ("device", measured.device),
        ("budget", f"{format_bytes(measured.budget)}: {verdict}"),
        ("time of a step", format_seconds(measured.seconds)),
        ("time of keeping everything", _time(measured.checkpoint_all_seconds)),
    ]
    return table(["", " predicted", " measured", " error"], rows) + facts([*times, *_against(measured)])


def _reserved(measured: Measurement) -> list[tuple[str, str, str, str]]:
    """Reserved bytes: predicted for a GPU, and measured where there was one."""
    found = measured.allocator
    predicted = format_bytes(measured.predicted_allocator.peak_reserved)
    return [
        ("reserved by PyTorch's allocator on a GPU", predicted, format_bytes(found.plan.reserved) if found else "", "")
    ]


def _against(measured) -> list[tuple[str, str]]:
    """Plain PyTorch beside it, and CUDA's own counts."""
    rows = []
    if measured.eager:
        compared = measured.eager.comparison
        rows = [
            ("plain PyTorch", f"{format_bytes(measured.eager.peak)}, {format_seconds(measured.eager.seconds)}"),
            ("gradients", _gradients(compared)),
            ("loss", compared.loss_text),
            ("buffers", compared.buffers_text),
            ("random state", compared.random_state_text),
            ("where it differs", compared.begins_text),
        ]
    if measured.allocator:
        found = measured.allocator
        rows += [("CUDA, beside the budget", str(found.plan)), ("CUDA, the whole process", str(found.process))]
    return [*rows, ("not compared", measured.missing)]


def _gradients(compared) -> str:
    equal = compared.gradients_equal
    return f"equal bit for bit: max difference {compared.gradient_difference:g}" if equal else compared.gradients_text


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_seconds(seconds)
