"""Plans that send values to the host: a local search over renewals, and lower bounds of its own.

In the order of reading: `renewals`, `renewal_search`, `transfer_moments`, `half_stages`, `offload_search`.
"""

from __future__ import annotations

from remat_explorer.solvers.offload.offload_search import TRANSFER_STRATEGIES, solve_with_transfers
