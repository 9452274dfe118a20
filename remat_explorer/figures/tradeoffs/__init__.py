"""Overhead against memory, for every strategy."""
