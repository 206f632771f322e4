"""Floor 6: requests over time."""
