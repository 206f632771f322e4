"""Find what trains a draft, or a target for a drafter, by name. There is no list to edit either (`registry.py`).

"medusa"              drafters/medusa/learn.py holds one `LEARN`; so in control/, for a policy that is learned
"layerskip"           finetune/layerskip.py trains a target for a drafter without weights of its own
"pkg.module:LEARN"    anything that can be imported
"""

import importlib
import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any

from outdraft.core.registry import KINDS, Kind
from outdraft.options.checked import check_value
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown

if TYPE_CHECKING:  # it needs torch, which would delay `outdraft --help`
    from outdraft.core.learner import LearnMethod

_FINETUNE = "outdraft.finetune"


def learner_names(kind: Kind = "drafter") -> list[str]:
    """Plug-ins of a kind that ship with outdraft and can be trained: their folder has a module `learn`."""
    package = importlib.import_module(KINDS[kind])
    homes = [m for m in pkgutil.iter_modules(package.__path__) if m.ispkg and m.name != "shared"]
    return sorted(m.name for m in homes if importlib.util.find_spec(f"{KINDS[kind]}.{m.name}.learn") is not None)


def finetune_names() -> list[str]:
    """What trains a target for a drafter that has no weights of its own."""
    modules = pkgutil.iter_modules(importlib.import_module(_FINETUNE).__path__)
    return sorted(m.name for m in modules if m.name != "shared")


def find_learner(name: str) -> "LearnMethod[Any, Any]":
    """How the draft of a method is trained: `LEARN` of drafters/NAME/learn.py, or of "package.module:LEARN".

    A policy may have learned too, of a draft (control/NAME/learn.py), and a target for a drafter (finetune/NAME.py).
    """
    from outdraft.core.learner import LearnMethod  # not before: it needs torch

    kinds: tuple[Kind, ...] = ("policy", "drafter")
    homes = {one: f"{KINDS[kind]}.{one}.learn" for kind in kinds for one in learner_names(kind)}
    homes |= {one: f"{_FINETUNE}.{one}" for one in finetune_names()}
    known, name = sorted(homes), check_value("kind", name, str)
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # a stranger's module, which may raise anything
            raise ConfigError(f"kind {name!r} cannot be imported: {error}; write package.module:LEARN") from error
        if not isinstance(found, LearnMethod):
            raise ConfigError(f"kind {name!r} is a {type(found).__name__}; it must be a LearnMethod")
        return found
    if name not in known:
        raise ConfigError(
            f"kind {shown(name)} is none that is trained{near_miss(name, known)}; known: {', '.join(known)}"
        )
    return importlib.import_module(homes[name]).LEARN  # type: ignore[no-any-return]
