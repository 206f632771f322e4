"""Layer 5: a draft that keeps learning from what it serves, and what must be shown before a candidate is used."""
