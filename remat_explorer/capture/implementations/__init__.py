"""Other ways to compute an operation, with other needs of memory: what MONeT calls operator implementations.

`alternatives.add_alternatives` gives the operations of a graph their implementations. Read `alternatives` first, then
`call_site`, which is what a pattern sees. Every other file is a family: patterns, which yield implementations of a
call, and kernels, which are functions of tensors without autograd and without a graph. Each kernel says whether it is
equal to PyTorch's own bit for bit, or how far from it.

Source: MONeT (Shah et al., ICLR 2021), section 4 and appendix C, and Gist (Jain et al., ISCA 2018).
"""
