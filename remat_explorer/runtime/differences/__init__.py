"""How large a difference from plain PyTorch is, and where it begins."""
