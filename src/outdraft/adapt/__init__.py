"""A draft that keeps learning while it serves: its guesses are observed, their failures diagnosed, and what is learned
must pass a gate before it guesses. No text depends on any of it, since the target judges every guess as before.
"""
