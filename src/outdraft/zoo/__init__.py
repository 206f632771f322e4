"""The small models that ship with outdraft: a target, two drafts, an early-exit head, an EAGLE network.

Trained from scratch by `recipes/zoo/` on public-domain and freely licensed text; docs/zoo.md tells how, and how good
they are. `path("target")` is the directory of one.
"""

import json
from pathlib import Path

from outdraft.core.errors import ModelLoadError
from outdraft.core.near_miss import near_miss


def names() -> list[str]:
    """The models that ship, sorted by name."""
    return sorted(p.parent.name for p in Path(__file__).parent.glob("*/config.json"))


def path(name: str) -> Path:
    """The directory of a model; raises `ModelLoadError` with the near miss if there is none of that name."""
    if name not in names():
        raise ModelLoadError(
            f"the zoo has no {name!r}{near_miss(name, names())}; it has: {', '.join(names()) or 'nothing'}"
        )
    return Path(__file__).parent / name


def heldout_prompts() -> dict[str, str]:
    """Openings of documents that no zoo model was trained on, and copies of them: "<kind> <number>" -> text.

    Kinds: prose, python, docs (PEPs and RFCs), copy. Sources and licences are those of docs/zoo.md.
    """
    prompts: dict[str, str] = {}
    for line in (Path(__file__).parent / "heldout.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        number = sum(name.startswith(f"{row['kind']} ") for name in prompts)
        prompts[f"{row['kind']} {number + 1}"] = row["prompt"]
    return prompts
