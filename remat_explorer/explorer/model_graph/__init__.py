"""The model's graph, drawn by the browser."""
