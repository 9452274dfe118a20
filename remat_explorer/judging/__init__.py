"""Methods judged on one graph: the schedule of each, through the one checker, beside what is proven at its own peak."""

from __future__ import annotations

from remat_explorer.judging.contenders import OURS, Contender, contenders
from remat_explorer.judging.judge import judge
from remat_explorer.judging.proofs import Proofs
from remat_explorer.judging.verdict import Verdict

__all__ = ["OURS", "Contender", "Proofs", "Verdict", "contenders", "judge"]
