"""The least memory of a schedule at a limited overhead."""
