"""Plug-ins that other installed packages bring, as entry points.

    [project.entry-points."outdraft.methods"]      in the package's pyproject.toml
    mine = "my_package.my_module:METHOD"           then `--drafter mine` finds it, and `outdraft methods` lists it

Data out: entry points, not loaded.
"""

from importlib.metadata import EntryPoint, entry_points

GROUP = "outdraft.methods"


def entry_points_of() -> list[EntryPoint]:
    """All of our group, by name."""
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
