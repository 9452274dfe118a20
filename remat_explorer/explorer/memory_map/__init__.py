"""The memory map: every value a rectangle, from where it is computed to where it is freed, at its offset."""
