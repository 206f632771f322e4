"""One file for each command, and no list to edit: `outdraft <name>` is `commands/<name>.py`, which holds `COMMAND`.

Everything heavy (torch, rich, the engine) is imported inside `run`, so that `--help` and `--version` answer at once.
"""
