"""Executes plans on the CPU and on CUDA, and measures them."""

from remat_explorer.capture.memory_meter import peaks_of_process
from remat_explorer.runtime.interpreter import Interpreter
from remat_explorer.runtime.measurement import Measurement
from remat_explorer.runtime.measuring import measure
from remat_explorer.runtime.outcome import StepOutcome
from remat_explorer.runtime.rematerialize import rematerialize

__all__ = ["Interpreter", "Measurement", "StepOutcome", "measure", "peaks_of_process", "rematerialize"]
