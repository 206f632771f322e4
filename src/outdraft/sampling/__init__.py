"""Layer 1: from logits to a distribution, and from a distribution and keyed noise to a token."""
