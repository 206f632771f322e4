"""The drafters of the demo and of `outdraft bench`, set up as suits the zoo's target; and how to spell another one.

default                     what `LLM` drafts with by itself
eagle                       as it is
eagle:k=8,width=3           k draft tokens a pass; any other word is an option of the drafter
ngram:verifier=sequential   `verifier` and `policy` are the engine's, `policy.NAME` is an option of the policy
my.module:METHOD:k=4        a drafter of another package
none:threads=1              always on so many threads, to compare with the number that is measured while it works
recipe:lookahead            a recipe, by its name or as a file; what follows overrides it: recipe:lookahead,k=3,window=5
recipe:eagle,head=DIR       `draft_model`, `head` and `datastore` fill its roles
"""

import json
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from outdraft.core.registry import names
from outdraft.engine.naming.recipe import read_recipe, recipe_names
from outdraft.engine.naming.roles import ROLES, read_companions
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve

ZOO_TARGET = "zoo:target"
DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One drafter, or one recipe, and how much it guesses. None: as the recipe says, or the engine's default."""

    name: str  # of the drafter; of a recipe, with `is_recipe`
    options: Mapping[str, Any] = field(default_factory=dict)  # the drafter's
    num_speculative_tokens: int | None = None
    verifier: str | None = None
    policy: str | None = None  # None: the recipe's; else fixed where k is named, and auto where it is not
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    is_recipe: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)  # of a recipe: what fills them
    threads: int | None = None  # always so many; None: as many as are quickest

    @property
    def label(self) -> str:
        """The name, and what was chosen: "eagle k=5"."""
        said: dict[str, Any] = {} if self.num_speculative_tokens is None else {"k": self.num_speculative_tokens}
        said |= self.roles
        said |= self.options
        said |= {} if self.verifier in (None, "auto") else {"verifier": self.verifier}
        said |= {} if self.policy is None else {"policy": self.policy}
        said |= {f"policy.{key}": value for key, value in self.policy_options.items()}
        said |= {} if self.threads is None else {"threads": self.threads}
        name = f"recipe:{self.name}" if self.is_recipe else self.name
        return " ".join([name, *(f"{key}={value}" for key, value in said.items())])

    @property
    def drafter(self) -> str:
        return read_recipe(self.name).drafter.name if self.is_recipe else self.name

    @property
    def words(self) -> dict[str, Any]:
        """The arguments of `LLM.with_speculation` that stand for it."""
        policy = {} if self.policy is None else {"name": self.policy}
        drafter = {"name": f"recipe:{self.name}" if self.is_recipe else self.name, **self.options}
        return {
            "drafter": None if self.name == DEFAULT else drafter,
            "verifier": self.verifier,
            "policy": {**policy, **self.policy_options} or None,
            "num_speculative_tokens": self.num_speculative_tokens,
            **self.roles,
        }


_LINE_UP = (
    Rival(name="draft_model", num_speculative_tokens=4),
    Rival(name="ngram", num_speculative_tokens=8),
    Rival(name="lookahead", num_speculative_tokens=4),
    Rival(name="eagle", num_speculative_tokens=5),
)
RIVALS = (Rival(name=DEFAULT), *(rival for rival in _LINE_UP if rival.name in names("drafter")))


def family(directory: Path) -> list[Rival]:
    """The line-up, and every head that the model's directory names, each by its recipe."""
    further = set(read_companions(directory).get("head", {})) & set(recipe_names()) - {rival.name for rival in RIVALS}
    return [*RIVALS, *(Rival(name=name, is_recipe=True) for name in sorted(further))]


def lineup_of(model: str) -> list[Rival]:
    """Who takes part where nothing is named: of another model than the zoo's, what needs no weights or lies beside."""
    if model.partition("@")[0] == ZOO_TARGET:
        return list(RIVALS)
    beside = read_companions(resolve(model.partition("@")[0]))
    own = [rival for rival in RIVALS if rival.name in (DEFAULT, "ngram", "lookahead") or rival.name in beside]
    heads = sorted(set(beside.get("head", {})) & set(names("drafter")))
    return [*own, *(Rival(name=name) for name in heads)]


def parse_rival(text: str, *, verifier: str | None = None) -> Rival:
    """What `--method` says."""
    name, rest = _name(text)
    parts = _split(rest) if rest else []
    is_recipe = name == "recipe"
    if is_recipe:
        if not parts:
            raise ConfigError(f"method {text!r} names no recipe; write for example recipe:{recipe_names()[0]}")
        name, parts = parts[0], parts[1:]
    options: dict[str, Any] = {}
    ours: dict[str, Any] = {"verifier": verifier, "is_recipe": is_recipe}
    pacing: dict[str, Any] = {}
    roles: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"method {text!r}: {part!r} is no key=value; write for example {name}:k=4")
        key = key.strip().replace("-", "_")
        if key in ("k", "num_speculative_tokens"):
            ours["num_speculative_tokens"] = _count(text, value)
        elif key == "threads":
            ours[key] = _count(text, value, "threads")
        elif key in ("verifier", "policy"):
            ours[key] = value.strip()
        elif key.startswith("policy."):
            pacing[key.removeprefix("policy.")] = _value(value)
        elif is_recipe and key in ROLES:
            roles[key] = value.strip()
        else:
            options[key] = _value(value)
    return Rival(name=name, options=options, policy_options=pacing, roles=roles, **ours)


def fill_roles(rivals: Seq[Rival], roles: Mapping[str, str]) -> list[Rival]:
    """The same rivals; what is given fills the roles of every recipe that has them and names nothing itself.

    Raises `ConfigError` for a role that none of them has.
    """
    has = [read_recipe(rival.name).roles if rival.is_recipe else {} for rival in rivals]
    for role, value in roles.items():
        if not any(role in own for own in has):
            raise ConfigError(
                f"{role}={value!r} fills a role that no recipe here has; see `outdraft methods --kind recipe`"
            )
    return [
        replace(rival, roles={**{role: value for role, value in roles.items() if role in own}, **rival.roles})
        for rival, own in zip(rivals, has, strict=True)
    ]


def _name(text: str) -> tuple[str, str]:
    """Whom "NAME:settings" or "package.module:METHOD:settings" names, and the settings."""
    name, _, rest = text.partition(":")
    attribute, _, behind = rest.partition(":")
    if attribute.strip().isidentifier() and name.strip() not in ("recipe", *names("drafter")):
        return f"{name.strip()}:{attribute.strip()}", behind
    return name.strip(), rest


def _split(text: str) -> list[str]:
    """At commas, but for those within brackets: they belong to a value."""
    depths = accumulate((c in "[{") - (c in "]}") for c in text)
    outside = [i for i, (c, depth) in enumerate(zip(text, depths, strict=True)) if c == "," and not depth]
    return [text[i + 1 : j] for i, j in pairwise([-1, *outside, len(text)])]


def _count(text: str, value: str, key: str = "k") -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ConfigError(f"method {text!r}: {key}={value} is no whole number") from error


def _value(text: str) -> Any:
    """JSON where it is JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
