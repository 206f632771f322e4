"""Decoders of known architectures: a configuration and a rename table each, over one shared block."""
