"""Dynamic Tensor Rematerialization, simulated: eviction without knowledge of what comes."""
