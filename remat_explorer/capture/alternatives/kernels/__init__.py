"""The numerics of alternative implementations: functions of tensors, without autograd and without a graph.

Each one says whether it is equal to PyTorch's own kernel bit for bit, or how far from it.
"""
