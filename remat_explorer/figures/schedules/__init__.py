"""R, S and U, and what of them differs between schedules."""
