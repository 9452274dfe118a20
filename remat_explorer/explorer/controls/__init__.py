"""The rows of fields, buttons and sliders."""
