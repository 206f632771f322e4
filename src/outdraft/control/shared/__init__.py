"""What several policies need: measured costs, acceptance that forgets, the speed-up formulas, limits of a request."""
