"""Many budgets of one graph: sweeps, and the frontier of cost and peak."""
