"""What PyTorch would run on a CUDA device, decided without one."""
