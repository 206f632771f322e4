"""Drafters made of drafters, and what they do beside the target's pass."""
