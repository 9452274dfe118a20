"""Schedules that choose an implementation for every run of every operation."""
