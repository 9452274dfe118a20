"""R, S and U on canvases, with one linked cursor."""
