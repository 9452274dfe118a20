"""What was scheduled, and with which software on which machine."""

from __future__ import annotations

from remat_explorer.quantities import format_bytes
from remat_explorer.report.contents import ReportContents
from remat_explorer.report.html import facts
from remat_explorer.report.machine import devices, versions


def setup(contents: ReportContents) -> str:
    """Model, sizes, graph, capture, versions and devices."""
    origin, summary, options = contents.origin, contents.graph.summary(), contents.graph.options
    image = origin.image if not isinstance(origin.image, int) else (origin.image, origin.image)
    parts = [
        ("model", origin.model or contents.name),
        ("batch", str(origin.batch or "")),
        ("image", " × ".join(map(str, image)) if image else ""),
        ("sequence", str(origin.sequence or "")),
        ("device", origin.device),
        ("costs", origin.costs),
        ("operations", f"{summary.forward} forward, {summary.backward} backward"),
        ("values", str(summary.values)),
        ("resident (parameters, inputs, buffers)", format_bytes(summary.resident_bytes)),
        ("features", format_bytes(summary.feature_bytes)),
        ("parameter gradients", format_bytes(summary.gradient_bytes)),
        ("largest workspace", format_bytes(summary.workspace_bytes)),
        ("optimizer counted as resident", (options.optimizer or "none") if options else ""),
    ]
    return f'<div class="columns">{facts(parts)}{facts([*versions(), *devices()])}</div>'
