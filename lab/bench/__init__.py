"""Measurements whose figures stand in docs/performance.md: each a command, none of them shipped."""
