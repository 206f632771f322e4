"""A target opened from a name: its network, its kernels, and what drafters may hold of it."""
