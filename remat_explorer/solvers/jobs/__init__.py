"""Solves in processes of their own: watched, cancelled, and survived when one is killed."""
