"""One file for each command, and no list to edit: `outdraft <name>` is `commands/<name>.py`, as `cli/command.py` says.

Everything heavy (torch, rich, the engine) is imported inside `run`, so that `--help` and `--version` answer at once.
"""
