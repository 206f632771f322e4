"""Structured output: a form that a user asks for becomes masks over tokens, by the library llguidance."""
