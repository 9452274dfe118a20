"""Other ways to compute an operation, with other needs of memory: what MONeT calls operator implementations.

Source: MONeT (Shah et al., ICLR 2021), section 4 and appendix C, and Gist (Jain et al., ISCA 2018).
"""
