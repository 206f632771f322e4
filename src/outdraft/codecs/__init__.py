"""Layer 1: from text to token ids and back. Everything above a codec sees only ids."""
