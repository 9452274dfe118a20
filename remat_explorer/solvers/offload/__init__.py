"""Plans that send values to the host: strategies, and lower bounds of their own.

In the order of reading: `offload_search`, whose local search is `remat_explorer.solvers.search.renewal_search`;
`transfer_moments` and `half_stages`, the bounds.
"""

from __future__ import annotations

from remat_explorer.solvers.offload.offload_search import solve_with_transfers
