"""The largest batch, or image, that trains within a memory.

`max_batch` and `max_image` are the answers, `batch_bound` proves them, and `batch_scaling` draws lines through the
sizes of two batches.
"""
