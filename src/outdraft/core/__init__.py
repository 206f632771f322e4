"""Layer 0: the data types and protocols that all other packages share. Nothing here computes."""
