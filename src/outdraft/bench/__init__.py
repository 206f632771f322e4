"""Layer 7: measurements. Drafters are timed against plain decoding in one interleaved run."""
