"""Schedules: what each stage computes and retains, the rules that they obey, and the memory that they need."""

from remat_explorer.schedule.runs import Computations, Retained, memory_before
from remat_explorer.schedule.schedule import Schedule
