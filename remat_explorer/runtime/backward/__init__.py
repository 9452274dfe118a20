"""The backward half of a plan for the gradients that came: of some of the outputs, and in whatever strides."""
