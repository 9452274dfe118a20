"""What a plan takes for granted about the model and its inputs, and what to say where it no longer holds."""
