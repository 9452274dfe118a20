"""Models that people run out of memory with, at their published shapes; none needs weights to be captured."""
