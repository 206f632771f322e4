"""Networks made of blocks, and what computes them: PyTorch, the native kernels."""
