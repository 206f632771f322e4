"""Layer 4: one step of the algorithm, written against protocols only."""
