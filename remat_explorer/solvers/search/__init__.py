"""The compiled search for schedules: walks that plan one, and a local search that improves it."""
