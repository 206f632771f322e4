"""Layer 1: from content, mostly text, to token ids and back. Everything above a codec sees only ids."""
