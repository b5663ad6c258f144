"""The op families: one file each, with kernels, shape functions, and gradients together."""
