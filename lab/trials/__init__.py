"""Trials: several ways of training a draft on the same texts, and what each of them is worth."""
