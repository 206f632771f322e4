"""What drafts, in the words of `LLM(...)`, read into a `Combination`. Two words name it, and only one may be used:

    drafter="ngram"                                 a drafter's name
    drafter={"name": "ngram", "max_ngram": 4}       and its options
    drafter="pipeinfer", drafter="path/to/my.toml"  a recipe's name or file; its drafter, rule and policy
    drafter="recipe:ngram"                          a recipe that is called as a drafter is
    speculative_config={"method": "ngram", ...}     vLLM's dictionary

`draft_model`, `head` and `datastore` fill the roles that a drafter or a recipe leaves to its user; a draft model that
is given alone drafts. `verifier` and `policy` are a name, or a mapping as the drafter's is. Where nothing says what
drafts: `default.py`. Words of other engines: `foreign.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

from outdraft.core.registry import Kind, find, names, option_names, override
from outdraft.engine.naming.combination import Choice, Combination, Speculation, combine
from outdraft.engine.naming.default import choose_default
from outdraft.engine.naming.foreign import refuse, settle
from outdraft.engine.naming.recipe import Recipe, fill_named, names_recipe, read_recipe
from outdraft.engine.naming.roles import ROLES, Companions, fill
from outdraft.engine.naming.speculative_config import from_mapping
from outdraft.options.checked import check_fields, check_value
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

_DRAFT_MODEL = "draft_model"  # the role, and the drafter that runs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What was given; None where nothing was."""

    drafter: str | Path | Mapping[str, Any] | None = None
    verifier: str | Mapping[str, Any] | None = None
    policy: str | Mapping[str, Any] | None = None
    num_speculative_tokens: int | None = None
    speculative_config: Mapping[str, Any] | None = None
    draft_model: str | Path | None = None
    head: str | Path | None = None
    datastore: str | Path | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for role, what in ROLES.items():
            if getattr(self, role) == "":
                raise ConfigError(f"{role}='' names nothing: give {what}, or leave it out")

    @property
    def roles(self) -> dict[str, str]:
        """What fills a role, by role."""
        return {role: str(value) for role in ROLES if (value := getattr(self, role)) is not None}

    def combine(self, companions: Callable[[], Companions]) -> Combination:
        """What is meant, with its options read: `read`, or the default where nothing was said of what drafts, nor of a
        rule that not every guess fits, nor that nothing is to.
        """
        is_named = not (self.drafter is None and self.speculative_config is None and self.draft_model is None)
        if is_named or self.num_speculative_tokens == 0 or self.verifier not in (None, "auto"):
            return combine(self.read(companions))
        return choose_default(self._over_recipe, companions, self.head)

    def read(self, companions: Callable[[], Companions] = dict) -> Speculation:
        """One meaning. Raises `ConfigError` where there are two, naming both and the cure.

        companions: what the model's own directory says of the roles that are left open.
        """
        if self.speculative_config is not None:
            return _filled(self._beside_config(self.speculative_config), {}, companions)
        drafter, roles = read_choice("drafter", self.drafter), self.roles
        name = drafter.name or (_DRAFT_MODEL if _DRAFT_MODEL in roles else "none")
        if not drafter.name and name == "none" and (drafter.options or roles):
            given = (
                f"drafter={dict(drafter.options)!r}"
                if drafter.options
                else next(f"{role}={place!r}" for role, place in roles.items())
            )
            raise ConfigError(
                f"{given} is for a drafter, and none is named: drafter={{'name': ...}}, or drafter='auto'"
            )
        if name != "none" and names_recipe(name):
            return self._over_recipe(read_recipe(name), companions)
        return _filled(self._join(Choice(name=name), Choice(name="auto"), None), roles, companions)

    def _beside_config(self, config: Mapping[str, Any]) -> Speculation:
        """The dictionary; options of its rule and of its policy may stand beside it."""
        verifier, policy = read_choice("verifier", self.verifier), read_choice("policy", self.policy)
        said: dict[str, Any] = {"drafter": self.drafter}
        said |= {"verifier": verifier.name or None, "policy": policy.name or None}
        said |= {"num_speculative_tokens": self.num_speculative_tokens, **self.roles}
        for word, value in said.items():
            if value is not None:
                raise ConfigError(
                    f"{word}={value!r} is given beside speculative_config: give it once; speculative_config takes "
                    "num_speculative_tokens, rejection_sample_method, policy, the options of its method, and its model"
                )
        return replace(from_mapping(config), verifier_options=verifier.options, policy_options=policy.options)

    def _over_recipe(self, recipe: Recipe, companions: Callable[[], Companions]) -> Speculation:
        """The recipe and what is given beside it. Roles are filled last: an option may have taken a role's place."""
        spoken = self._join(recipe.drafter, recipe.verifier, recipe.policy, recipe.describe())
        options, filled = fill(recipe.name, spoken.drafter, spoken.drafter_options, self.roles, companions)
        described = {**spoken.recipe, "roles": filled} if filled else spoken.recipe
        return replace(spoken, drafter_options=options, recipe=described)

    def _join(
        self, drafter: Choice, verifier: Choice, policy: Choice | None, recipe: Mapping[str, Any] | None = None
    ) -> Speculation:
        """What was given over what is there; no policy at all is left to `Speculation`."""
        drafter = _over("drafter", drafter, Choice(options=read_choice("drafter", self.drafter).options))
        verifier = _over("verifier", verifier, read_choice("verifier", self.verifier))
        pacing = read_choice("policy", self.policy)
        if policy is not None:
            pacing = _over("policy", policy, pacing)
        return Speculation(
            drafter=drafter.name,
            drafter_options=drafter.options,
            verifier=verifier.name,
            verifier_options=verifier.options,
            policy=pacing.name or None,
            policy_options=pacing.options,
            num_speculative_tokens=self.num_speculative_tokens,
            recipe=recipe or {},
        )


WORDS = frozenset(one.name for one in fields(Words))


def read_choice(kind: Kind, given: str | Path | Mapping[str, Any] | None) -> Choice:
    """A plug-in by its name, or by a mapping of its name and its options."""
    if not isinstance(given, Mapping):
        return Choice(name="" if given is None else str(given))
    options = dict(given)
    return Choice(name=str(check_value("name", options.pop("name", ""), str | Path, of=f"the {kind}")), options=options)


def _filled(spoken: Speculation, roles: Mapping[str, str], companions: Callable[[], Companions]) -> Speculation:
    """With the roles of the drafter filled; plain decoding has none."""
    if spoken.drafter == "none" and not roles:
        return spoken
    return replace(spoken, drafter_options=fill_named(spoken.drafter, spoken.drafter_options, roles, companions))


def _over(kind: Kind, base: Choice, given: Choice) -> Choice:
    """What is given over the base, whose options count only if it is the same plug-in."""
    if given.name not in ("", base.name):
        return given
    return Choice(name=base.name, options=override(find(kind, base.name), base.options, given.options))


def read_words(
    unknown: Mapping[str, Any], taker: Callable[..., Any], companions: Callable[[], Companions], **words: Any
) -> Combination:
    """All of the above at once, as given to `taker`: plug-ins with their options. `unknown`: what else it was given."""
    for key in settle(unknown) if unknown else ():
        hint = _hint(key, parameters_of(taker))
        raise ConfigError(f"LLM takes no {key!r}{hint}; drafter= or speculative_config= says what drafts")
    return Words(**words).combine(companions)


def read_beside(
    unknown: Mapping[str, Any], taker: Callable[..., Any], companions: Callable[[], Companions], **words: Any
) -> Combination:
    """The same for another engine over the weights that `taker` loaded: whatever else that one took stays as it was."""
    for key, value in unknown.items():
        if key in parameters_of(taker):
            raise ConfigError(
                f"{key!r} belongs to LLM(...): an engine over the same weights keeps it as it was. It may change what "
                f"drafts: {', '.join(sorted(WORDS))}"
            )
        refuse(key, value)
        raise ConfigError(f"another engine over the same weights takes no {key!r}{_hint(key, sorted(WORDS))}")
    return Words(**words).combine(companions)


def parameters_of(taker: Callable[..., Any]) -> list[str]:
    """The names that `LLM`'s own signature has."""
    return [name for name in signature(taker).parameters if name not in ("self", "unknown")]


def _hint(key: str, known: Sequence[str]) -> str:
    """What was probably meant by a word that no part takes: a drafter's option, or a slip."""
    if any(key in option_names(find("drafter", name)) for name in names("drafter")):
        return f"; it is an option of a drafter: drafter={{'name': ..., {key!r}: ...}}"
    return near_miss(key, known)
