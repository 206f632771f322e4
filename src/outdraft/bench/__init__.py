"""Layer 7: seconds. Drafters timed against plain decoding in one interleaved run."""
