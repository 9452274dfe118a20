"""Plans inside of torch.compile: a partitioner for AOTAutograd, and the one line that takes it."""

from remat_explorer.runtime.compiled.partitioner import partitioner
from remat_explorer.runtime.compiled.torch_compile import compile
