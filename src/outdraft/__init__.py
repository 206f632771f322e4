"""outdraft: speculative decoding, lossless and provable."""
