"""When a value is in memory along a plan: its versions as bars, with their reads, and in words."""

from __future__ import annotations

from remat_explorer.explanations import Life, Mention
from remat_explorer.explorer.panels.markup import link, place, text
from remat_explorer.plan import Plan

SPANS = 3  # versions that are named
READS = 24  # reads that are marked


class StatementNumbers:
    """How the statements of a plan are written: by their numbers, from 0."""

    def __init__(self, plan: Plan) -> None:
        self.total = str(len(plan.statements))

    def number(self, statement: int) -> str:
        """A statement's number."""
        return str(statement)

    def count(self, first: int, last: int) -> str:
        """How many there are from one to another, both included."""
        return str(last - first + 1)


def life_strip(lives: tuple[Life, ...], statements: StatementNumbers) -> str:
    """A drawing of the versions of a value, with a place for the cursor, and a line that names the first ones.

    Args:
        lives: of the value, in order.
        statements: how those of the plan are written.

    >>> from remat_explorer.explanations.values import lives_of
    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> life_strip(lives_of(plan).of_value[1], StatementNumbers(plan)).rpartition("In memory: ")[2]
    '<span class="link" role="button" tabindex="0" data-stage="1">stages 1 to 2 (statements 1 to 4)</span>.</p>'
    """
    if not lives:
        return ""
    bars = [f'<rect class="cursor" x="{place("begin")}" y="0" width="{place("width")}" height="16"/>']
    for life in lives:
        x, name = statements.number(life.first), text(_span(life, statements))
        bars.append(
            f'<g class="life" data-stage="{life.first_stage}"><title>{name}</title>'
            f'<rect x="{x}" y="4" width="{statements.count(life.first, life.last)}" height="8"/>'
            f'<path d="M{x} 4v8"/></g>'  # what is shorter than a pixel is seen, too
        )
    reads = [statements.number(read) for life in lives for read in life.readers][:READS]
    bars.append(f'<path class="read" d="{"".join(f"M{read} 2v12" for read in reads)}"/>')
    more = f"; {len(lives) - SPANS} more" if len(lives) > SPANS else ""
    links = "; ".join(link(Mention(_span(life, statements), stage=life.first_stage)) for life in lives[:SPANS]) + more
    return (
        f'<svg class="strip" viewBox="0 0 {statements.total} 16" preserveAspectRatio="none" role="img" '
        f'aria-label="When it is in memory, along the plan">{"".join(bars)}</svg>'
        f'<p class="quiet small">In memory: {links}.</p>'
    )


def _span(life: Life, statements: StatementNumbers) -> str:
    stages = (
        f"stage {life.first_stage}"
        if life.first_stage == life.last_stage
        else f"stages {life.first_stage} to {life.last_stage}"
    )
    return f"{stages} (statements {statements.number(life.first)} to {statements.number(life.last)})"
