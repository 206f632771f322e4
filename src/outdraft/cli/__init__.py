"""Layer 8: the command `outdraft`. It asks the engine and shows what it said; nothing is computed here."""
