"""Plans with a third choice for every value: keep it, compute it again, or send it to the host and fetch it back.

- `transfers`: bandwidths, latency and host memory, which are part of the problem
- `transfer_plan`: the statements, and what bytes and seconds follow from them
- `transfer_check`: what every plan passes before anyone sees it
- `transfer_solution`: what a solve returns, with what is proven, and its file
"""

from remat_explorer.offload.transfer_check import CheckedTransfers, check_transfers
from remat_explorer.offload.transfer_plan import Drop, Event, Fetch, Send, TransferPlan, TransferTimeline
from remat_explorer.offload.transfer_solution import TransferSolution, best_known, known_bound, retimed, status_of
from remat_explorer.offload.transfers import LINKS, Transfers
