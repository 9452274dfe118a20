"""What PyTorch's CUDA caching allocator does with what a plan asks for.

- `settings`: its sizes and settings
- `blocks`: blocks, segments, pools, and the driver
- `expandable`: segments that grow
- `caching`: the allocator
- `prediction`: a plan, replayed on it
- `recorded`: recorded histories, replayed on it
"""

from remat_explorer.allocator.caching import CachingAllocator
from remat_explorer.allocator.prediction import AllocatorPrediction, predict_allocator, reserved_of
from remat_explorer.allocator.recorded import TraceReplay, replay_trace
from remat_explorer.allocator.settings import AllocatorSettings
