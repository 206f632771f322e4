"""The small models that ship with outdraft: a target, and the drafts and heads that were trained for it.

Trained from scratch by `lab/zoo` on public-domain and freely licensed text; docs/zoo.md says how, and how good they
are. `path("target")` is the directory of one.
"""

import json
from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss

_HOME = Path(__file__).parent


def names() -> list[str]:
    """The models, sorted by name."""
    return sorted(place.parent.name for place in _HOME.glob("*/config.json"))


def path(name: str) -> Path:
    """The directory of a model. Raises `ModelLoadError` with the near miss."""
    known = names()
    if name not in known:
        raise ModelLoadError(
            f"the zoo has no {name!r}{near_miss(name, known)}; it has: {', '.join(known)}. "
            "Further heads are made by lab/zoo of the repository (docs/zoo.md), and are named by their directory"
        )
    return _HOME / name


def home(known: str) -> Path:
    """Where the drafts of a model with a short name lie, and the companions.json that names them."""
    return _HOME / known


def heldout_prompts() -> dict[str, str]:
    """Openings of documents that no zoo model was trained on, and copies of them: "<kind> <number>" -> text.

    Kinds: prose, python, docs (PEPs and RFCs), copy. Sources and licences are those of docs/zoo.md.
    """
    prompts: dict[str, str] = {}
    for line in (_HOME / "heldout.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        number = sum(name.startswith(f"{row['kind']} ") for name in prompts)
        prompts[f"{row['kind']} {number + 1}"] = row["prompt"]
    return prompts
