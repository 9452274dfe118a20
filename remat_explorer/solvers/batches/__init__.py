"""The largest batch, or image, that trains within a memory."""
