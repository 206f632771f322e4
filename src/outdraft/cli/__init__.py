"""Layer 8: the command `outdraft`. It calls the other packages and prints their results; nothing is computed here."""
