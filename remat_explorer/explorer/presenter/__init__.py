"""The presenter mode: scenes that fill the screen, one after the other."""
