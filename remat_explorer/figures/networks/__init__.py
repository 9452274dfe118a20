"""The model as a picture, and its layers."""
