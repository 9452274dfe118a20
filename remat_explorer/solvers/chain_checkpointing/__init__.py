"""Persistent checkpointing of a chain of blocks: a dynamic program over which block saves what.

`block_chain` finds the blocks, `chain_program` (`cheapest_persistent`) has the program, `chain_table` its loop.
"""
