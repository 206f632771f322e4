"""What the documentation site adds to the pages: the menu of methods, and links to files outside docs/.

`mkdocs.yml` names this file under `hooks`. The menu is read from docs/methods, so that adding or removing a method's
page changes nothing else. A link such as `../examples` has no page on the site: its text and path are shown instead.
"""

import re
from pathlib import Path
from typing import Any

from outdraft.core.registry import KINDS, names

OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./(?:\.\./)?(?:examples|lab|src|recipes|tests)[^)]*)\)")
TITLES = {"drafter": "Drafters", "verifier": "Acceptance rules", "policy": "Policies"}


def on_config(config: Any) -> Any:
    """Put the pages of docs/methods into the menu, in the catalogue's three groups; `auto` is both rule and policy."""
    pages = {path.stem for path in (Path(config["docs_dir"]) / "methods").glob("*.md")}
    groups = []
    for kind in KINDS:
        listed = [name for name in names(kind) if name in pages]
        pages -= set(listed)
        groups.append({TITLES[kind]: [{name: f"methods/{name}.md"} for name in listed]})
    for entry in config["nav"]:
        if "Methods" in entry:
            entry["Methods"] += groups
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace links to files of the repository by their text and path, and [directories](methods/) by their text."""
    markdown = markdown.replace("[methods/](methods/)", "[methods](methods.md)")
    return OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2].lstrip('./')}`)", markdown)
