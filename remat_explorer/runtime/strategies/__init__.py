"""Strategies that need torch, imported when they first run."""
