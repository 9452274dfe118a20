"""What training loops of other libraries do with a model, beside calling it."""
