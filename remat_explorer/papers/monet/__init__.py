"""Figures and tables of MONeT."""
