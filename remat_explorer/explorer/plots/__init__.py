"""The plotly figure: trade-off curve and memory timeline."""
