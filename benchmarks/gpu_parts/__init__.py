"""The parts of benchmarks/gpu.py: what each measures, how it is run within its time, and its table."""
