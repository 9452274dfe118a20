"""Memory along a plan, and what it is made of."""
