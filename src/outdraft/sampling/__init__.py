"""Floor 1: from logits to a law, and from a law and keyed noise to a token."""
