"""Measured costs and workspace, and where they are kept."""
