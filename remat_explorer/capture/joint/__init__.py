"""The joint forward and backward graph of a step, traced and cleaned."""
