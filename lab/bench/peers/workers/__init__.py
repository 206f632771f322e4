"""Run by a peer's own Python as `python serve.py with_NAME`; only `with_outdraft` imports outdraft."""
