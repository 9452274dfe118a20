"""Plans inside of torch.compile: a partitioner for AOTAutograd, and the one line that takes it."""

from remat_explorer.runtime.compiled.compiling import compile
from remat_explorer.runtime.compiled.partitioner import partitioner

__all__ = ["compile", "partitioner"]
