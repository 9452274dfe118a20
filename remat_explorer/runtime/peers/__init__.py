"""PyTorch's own ways to train in less memory, measured as our plans are."""

from remat_explorer.runtime.peers.compare import compare_peers
from remat_explorer.runtime.peers.peer_measurement import PeerMeasurement
from remat_explorer.runtime.peers.pytorch_budget import pytorch_budget_plan
from remat_explorer.runtime.peers.stages import schedule_of

__all__ = ["PeerMeasurement", "compare_peers", "pytorch_budget_plan", "schedule_of"]
