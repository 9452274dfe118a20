"""The person's model as one training step, a function of tensors."""
