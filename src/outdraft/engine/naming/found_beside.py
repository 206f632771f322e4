"""Find drafts and heads in or beside a model's directory, so that they are used without a file that names them.

    MODEL/draft         a smaller model                      fills the role of a draft model
    MODEL/head          a head of any kind that is known     fills the role of a head, for the drafter of its kind
    MODEL/../ANY        a head whose config.json names MODEL as its verifier, as speculators writes it; likewise

Data in: a model's directory; data out: role -> drafter -> where it is. What is found is noted in the log
`outdraft.notes`, at level INFO.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from outdraft.core.registry import find_learner

Companions = Mapping[str, Mapping[str, str]]  # role -> drafter, or "any" -> where it is
_MOST = 64  # neighbours that are looked at
_log = logging.getLogger("outdraft.notes")


def found_beside(directory: Path, *, unless: frozenset[str] = frozenset()) -> Companions:
    """What lies in a model's directory or beside it. `unless`: roles that need nothing."""
    found: dict[str, dict[str, str]] = {}
    if not directory.is_dir():
        return found  # a GGUF file
    if "draft_model" not in unless and (directory / "draft" / "config.json").is_file():
        found["draft_model"] = {"any": str(directory / "draft")}
    if "head" not in unless:
        from outdraft.models.files.foreign_heads import recognise  # not before: it needs torch

        for head in _heads(directory):
            if (known := recognise(head)) is not None:
                drafter = find_learner(known[0]).drafter or known[0]
                found.setdefault("head", {}).setdefault(drafter, str(head))
    for role, named in found.items():
        for drafter, path in named.items():
            whose = "" if drafter == "any" else f" for {drafter}"
            _log.info("found %s%s beside the model: %s", role, whose, path)
    return found


def _heads(directory: Path) -> Iterator[Path]:
    """MODEL/head, then neighbours that name the model."""
    if (directory / "head").is_dir():
        yield directory / "head"
    try:
        neighbours = sorted(directory.parent.iterdir())
    except OSError:
        return
    for one in neighbours[:_MOST]:
        if one != directory and (one / "config.json").is_file() and _names(one, directory):
            yield one


def _names(head: Path, model: Path) -> bool:
    """Whether a head's configuration names this model as its verifier, by its path or by the last part of its name."""
    from outdraft.models.files.foreign_heads import read_config

    told = read_config(head).get("speculators_config")
    verifier = told.get("verifier") if isinstance(told, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return isinstance(name, str) and bool(name) and Path(name).name == model.name
