"""Persistent checkpointing of a chain of blocks: a dynamic program over which block saves what."""
