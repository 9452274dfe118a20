"""PyTorch's own ways to train in less memory, measured as our plans are."""

from remat_explorer.runtime.peers.activation_budget_plan import pytorch_budget_plan, schedule_of
from remat_explorer.runtime.peers.peer_comparison import compare_peers
from remat_explorer.runtime.peers.peer_measurement import PeerMeasurement
