"""What the explorer does: load, solve, sweep, improve, execute, each in the background."""
