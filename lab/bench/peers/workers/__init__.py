"""Run by a peer's own Python as `python serve.py with_NAME`; nothing here imports outdraft."""
