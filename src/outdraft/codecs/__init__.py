"""Layer 1: between text and token ids. Everything above a codec sees only ids."""
