"""The small models that ship with outdraft: a target, and the drafts and heads that were trained for it.

Trained from scratch by `recipes/zoo/` on public-domain and freely licensed text; docs/zoo.md says how, and how good
they are. `path("target")` is the directory of one. What a wheel of reasonable size has no room for is in a second
package, `outdraft-zoo`, which holds nothing but such directories; `more.json` names them.
"""

import json
from importlib.util import find_spec
from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.near_miss import near_miss

PACKAGE, MODULE = "outdraft-zoo", "outdraft_zoo"
_OWN = Path(__file__).parent


def names() -> list[str]:
    """The models that are installed, here or in the second package, sorted by name."""
    return sorted({place.parent.name for home in _homes() for place in home.glob("*/config.json")})


def path(name: str) -> Path:
    """The directory of a model. Raises `ModelLoadError`: with the package to install, or with the near miss."""
    for home in _homes():
        if name in names() and (home / name / "config.json").is_file():
            return home / name
    if name in _more():
        raise ModelLoadError(f"zoo:{name} is in a package of its own, which is not installed: pip install {PACKAGE}")
    known = [*names(), *_more()]
    raise ModelLoadError(f"the zoo has no {name!r}{near_miss(name, known)}; it has: {', '.join(names()) or 'nothing'}")


def is_missing(place: str) -> bool:
    """Whether a place is that of a zoo model ("zoo:NAME") which is not installed."""
    return place.startswith("zoo:") and place.removeprefix("zoo:") not in names()


def heldout_prompts() -> dict[str, str]:
    """Openings of documents that no zoo model was trained on, and copies of them: "<kind> <number>" -> text.

    Kinds: prose, python, docs (PEPs and RFCs), copy. Sources and licences are those of docs/zoo.md.
    """
    prompts: dict[str, str] = {}
    for line in (_OWN / "heldout.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        number = sum(name.startswith(f"{row['kind']} ") for name in prompts)
        prompts[f"{row['kind']} {number + 1}"] = row["prompt"]
    return prompts


def _homes() -> list[Path]:
    """Where models lie: our own first, so that nothing else takes their names."""
    spec = find_spec(MODULE)
    places = spec.submodule_search_locations if spec is not None else None
    return [_OWN, *map(Path, places or ())]


def _more() -> list[str]:
    """The models of the second package."""
    return list(json.loads((_OWN / "more.json").read_text("utf-8")))
