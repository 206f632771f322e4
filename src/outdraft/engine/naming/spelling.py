"""The ways to choose a drafter, read into one `Speculation`; only one may be used. Without any: `default.py`.

drafter="ngram", drafter_options={...}          ours
recipe="lookahead", recipe="path/to/my.toml"    a paper's combination; options beside it override the recipe's
recipe="eagle", head="path"                     and what it leaves to its user: draft_model, head, datastore
speculative_config={"method": "ngram", ...}     vLLM's dictionary
draft_model="path"                              a draft model
speculative_model="path" | "[ngram]"            the same in vLLM's older words
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from outdraft.core.registry import Kind, find, names, option_names, override
from outdraft.engine.naming.combination import Combination, combine
from outdraft.engine.naming.default import choose_default
from outdraft.engine.naming.foreign import settle
from outdraft.engine.naming.found_beside import Companions
from outdraft.engine.naming.named_roles import fill_named
from outdraft.engine.naming.recipe import Choice, Recipe, read_recipe
from outdraft.engine.naming.roles import ROLES, fill
from outdraft.engine.naming.speculative_config import Speculation, from_mapping
from outdraft.options.checked import check_fields
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

_DRAFT_MODEL = "draft_model"  # the recipe whose drafter runs the model that `draft_model=` names
_WAYS = ("drafter", "recipe", "speculative_config", "draft_model", "speculative_model")
_PEERS = {  # what other engines call it
    "assistant_model": "draft_model",
    "draft_model_id": "draft_model",
    "speculate": "num_speculative_tokens",
    "num_draft_tokens": "num_speculative_tokens",
    "num_assistant_tokens": "num_speculative_tokens",
    "max_speculative_tokens": "num_speculative_tokens",
    "prompt_lookup_num_tokens": "num_speculative_tokens, beside a drafter that looks up",
    "spec_decoding_acceptance_method": "verifier",
    "torch_dtype": "dtype",
    "device_map": "device",
    "n_gpu_layers": "device",
    "n_ctx": "max_model_len",
    "max_seq_len": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "kv_cache_memory_bytes": "kv_cache_memory",
    "max_queued_requests": "max_num_waiting",
    "model_path": "model",
    "pretrained_model_name_or_path": "model",
    "n_threads": "OMP_NUM_THREADS, a variable of the environment",
    "speculative_algorithm": "drafter",
    "draft_model_path": "draft_model",
    "spec_model": "draft_model",
    "spec_tokens": "num_speculative_tokens",
    "kv_cache_quant": "kv_cache_dtype",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What was given; None where nothing was."""

    drafter: str | None = None
    drafter_options: Mapping[str, Any] | None = None
    verifier: str | None = None
    verifier_options: Mapping[str, Any] | None = None
    policy: str | None = None
    policy_options: Mapping[str, Any] | None = None
    num_speculative_tokens: int | None = None
    recipe: str | Path | None = None
    speculative_config: Mapping[str, Any] | None = None
    draft_model: str | Path | None = None  # a way of its own; beside a recipe, one of its roles
    speculative_model: str | Path | None = None
    head: str | Path | None = None  # a recipe's role
    datastore: str | Path | None = None  # a recipe's role

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("draft_model", "speculative_model", "head", "datastore"):
            if getattr(self, name) == "":
                raise ConfigError(
                    f"{name}='' names nothing: give {ROLES.get(name, ROLES['draft_model'])}, or leave it out"
                )

    @property
    def leaves_it_open(self) -> bool:
        """Whether nothing was said of what drafts, nor of a rule that not every guess fits, nor that nothing is to."""
        others = (self.drafter_options, self.verifier_options, self.num_speculative_tokens == 0)
        ways = (getattr(self, way) for way in _WAYS)
        return all(way is None for way in ways) and not any(others) and self.verifier in (None, "auto")

    def combine(self, companions: Callable[[], Companions]) -> Combination:
        """What is meant, with its options read: `read`, or the default where nothing was said."""
        if self.leaves_it_open:
            return choose_default(self._with_recipe, companions, self.head)
        return combine(self.read(companions))

    def read(self, companions: Callable[[], Companions] = dict) -> Speculation:
        """One meaning. Raises `ConfigError` where there are two, naming both and the cure.

        companions: what the model's own directory says of the roles that a recipe, or a named drafter, leaves open.
        """
        ways = [way for way in _WAYS if getattr(self, way) is not None]
        if self.recipe is not None and "draft_model" in ways:
            ways.remove("draft_model")
        if len(ways) > 1:
            self._refuse(ways)
        if self.recipe is not None:
            return self._with_recipe(read_recipe(self.recipe), companions)
        for role in ("head", "datastore"):
            if (value := getattr(self, role)) is not None:
                raise ConfigError(
                    f"{role}={str(value)!r} fills a role of a recipe, and no recipe is given: name one, for example "
                    "recipe='auto'; a drafter takes it by its own option, in drafter_options"
                )
        plain = Speculation()
        if self.speculative_config is not None:
            spoken = self._with_config(self.speculative_config)
        else:
            spoken = self._join(Choice(name=plain.drafter), Choice(name=plain.verifier), None)
        if spoken.drafter == plain.drafter:
            return spoken
        return replace(spoken, drafter_options=fill_named(spoken.drafter, spoken.drafter_options, companions))

    def _refuse(self, ways: list[str]) -> NoReturn:
        given = " and ".join(f"{way}={getattr(self, way)!r}" for way in ways)
        cure = "each says what drafts: give one of them"
        if "recipe" in ways:
            cure = "a recipe names its drafter: leave one out, or change the recipe's with drafter_options, verifier, "
            cure += "policy and their options; for another drafter write a recipe file of your own (docs/recipes.md)"
        raise ConfigError(f"{given} are both given; {cure}")

    def _with_recipe(self, recipe: Recipe, companions: Callable[[], Companions]) -> Speculation:
        """The recipe and what is given beside it. Roles are filled last: an option may have taken a role's place."""
        given = {role: value for role in ROLES if (value := getattr(self, role)) is not None}
        plain = replace(self, draft_model=None)
        spoken = plain._join(recipe.drafter, recipe.verifier, recipe.policy, recipe.describe())
        options, roles = fill(recipe.name, spoken.drafter, spoken.drafter_options, given, companions)
        told = {**spoken.recipe, "roles": roles} if roles else spoken.recipe
        return replace(spoken, drafter_options=options, recipe=told)

    def _with_config(self, config: Mapping[str, Any]) -> Speculation:
        ours = ("drafter_options", "verifier", "policy", "num_speculative_tokens")
        given = [name for name in ours if getattr(self, name) not in (None, {})]
        if given:
            raise ConfigError(
                f"{given[0]}={getattr(self, given[0])!r} is given beside speculative_config: give it once; "
                "speculative_config takes num_speculative_tokens, rejection_sample_method, policy and the options "
                "of its method"
            )
        return replace(
            from_mapping(config),
            verifier_options=self.verifier_options or {},
            policy_options=self.policy_options or {},
        )

    def _join(
        self, drafter: Choice, verifier: Choice, policy: Choice | None, recipe: Mapping[str, Any] | None = None
    ) -> Speculation:
        """What was given over what is there; no policy at all is left to `Speculation`."""
        name, options = self._named()
        drafter = _over(drafter, "drafter", name, {**options, **(self.drafter_options or {})})
        verifier = _over(verifier, "verifier", self.verifier, self.verifier_options or {})
        pacing, pace = self.policy, self.policy_options or {}
        if policy is not None:
            policy = _over(policy, "policy", self.policy, pace)
            pacing, pace = policy.name, policy.options
        return Speculation(
            drafter=drafter.name,
            drafter_options=drafter.options,
            verifier=verifier.name,
            verifier_options=verifier.options,
            policy=pacing,
            policy_options=pace,
            num_speculative_tokens=self.num_speculative_tokens,
            recipe=recipe or {},
        )

    def _named(self) -> tuple[str | None, dict[str, Any]]:
        """The drafter that was named in any way but by recipe or dictionary, and the options that this implies."""
        given = self.speculative_model if self.draft_model is None else self.draft_model
        if given is None:
            return self.drafter, {}
        model = str(given)
        if model.startswith("[") and model.endswith("]"):
            return model[1:-1], {}
        recipe = read_recipe(_DRAFT_MODEL)
        runs = recipe.drafter
        options, _ = fill(recipe.name, runs.name, runs.options, {"draft_model": model}, dict)
        return runs.name, options


WORDS = frozenset(one.name for one in fields(Words))


def _over(base: Choice, kind: Kind, name: str | None, options: Mapping[str, Any]) -> Choice:
    """`options` over the base's, which count only if it is the same plug-in."""
    if name is not None and name != base.name:
        return Choice(name=name, options=dict(options))
    return Choice(name=base.name, options=override(find(kind, base.name), base.options, options))


def read_words(
    unknown: Mapping[str, Any], taker: Callable[..., Any], companions: Callable[[], Companions], **words: Any
) -> Combination:
    """All of the above at once, as given to `taker`: plug-ins with their options. `unknown`: what else it was given."""
    known = parameters_of(taker)
    for key in settle(unknown) if unknown else ():
        raise ConfigError(f"LLM takes no {key!r}{_hint(key, known)}; choose what drafts with {', '.join(_WAYS)}")
    return Words(**words).combine(companions)


def read_beside(
    unknown: Mapping[str, Any], taker: Callable[..., Any], companions: Callable[[], Companions], **words: Any
) -> Combination:
    """The same for another engine over the weights that `taker` loaded: whatever else that one took stays as it was."""
    settled = parameters_of(taker)
    for key in unknown:
        if key in settled:
            raise ConfigError(
                f"{key!r} belongs to LLM(...): an engine over the same weights keeps it as it was. It may change what "
                f"drafts: {', '.join(sorted(WORDS))}"
            )
        raise ConfigError(f"another engine over the same weights takes no {key!r}{_hint(key, sorted(WORDS))}")
    return Words(**words).combine(companions)


def parameters_of(taker: Callable[..., Any]) -> list[str]:
    """The names that `LLM`'s own signature has."""
    return [name for name in signature(taker).parameters if name not in ("self", "unknown")]


def _hint(key: str, known: Sequence[str]) -> str:
    """What was probably meant by a word that no part takes: a peer's name, a drafter's option, or a slip."""
    if meant := _PEERS.get(key):
        return f"; here it is called {meant}"
    if any(key in option_names(find("drafter", name)) for name in names("drafter")):
        return f"; it is an option of a drafter: drafter_options={{{key!r}: ...}}"
    return near_miss(key, known)
