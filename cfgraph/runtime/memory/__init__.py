"""Memory of devices: accounting, limits, swapping, and placement of tensors."""
