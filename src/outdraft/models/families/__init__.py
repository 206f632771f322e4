"""Architectures, a file each: which fields of a config.json, which tensors, which network."""
