"""Plans for smaller batches and shorter sequences, without a search: the schedule that was found for larger ones."""
