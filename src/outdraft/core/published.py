"""Where a page of the documentation is: the address that the installed package names, or the file in the sources.

A release is built with the address of its repository (`setup.py`); without it the package names none.
"""

from importlib.metadata import PackageNotFoundError, metadata


def page(name: str) -> str:
    """The address of `name`, such as "methods/ngram.md"; without one, where it lies in the sources."""
    try:
        links = metadata("outdraft").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from the sources
        links = []
    found = dict(link.split(", ", 1) for link in links if ", " in link)
    home = found.get("Documentation")
    return f"{home.rstrip('/')}/{name}" if home else f"docs/{name} in outdraft's sources"
