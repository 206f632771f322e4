"""Chains of guesses: stepped from Python, or grown in one native call."""
