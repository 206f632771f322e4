"""Attention over a paged cache as a function of static tensors: what a CUDA graph can record, and a CPU can check."""
