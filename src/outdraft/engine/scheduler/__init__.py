"""Who runs in the next pass, with how many rows. It knows sequences, a clock, memory by its numbers, and no parts."""
