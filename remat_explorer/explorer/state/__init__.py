"""What the explorer knows: one state, and pure functions of what is in it."""
