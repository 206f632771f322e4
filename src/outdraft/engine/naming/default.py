"""The default drafter: the recipe `auto` over look-ups, and over a head or a draft model that is given or found.

    native kernels, the guard, CUDA    recipe auto: plain decoding is one of its choices, and the policy measures
    elsewhere (PyTorch on a CPU)       plain decoding, and one line in the log

On CUDA chains write plain decoding's text. Without the guard (off by default in bfloat16 and float16) rounding may
decide a near-tie in a tree otherwise than plain decoding does; a line in the log names the guard.

Where a head is found, a draft model beside it is left alone: it has to read the text too, and each drafter that seldom
pays costs rounds that try it. What lies beside a model and does not fit is left out with a warning; look-ups then draft
alone. `drafter="none"`, or num_speculative_tokens=0, is plain decoding everywhere. Data in: what was given besides;
data out: a `Combination` and what stands in for it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from outdraft import zoo
from outdraft.core.learner_registry import find_learner
from outdraft.engine.naming.combination import Choice, Combination, Speculation, combine
from outdraft.engine.naming.recipe import Recipe, read_recipe
from outdraft.engine.naming.roles import Companions, slots_of, without_draft_model
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import can_pack
from outdraft.models.networks.network import Network
from outdraft.models.target.open_network import find_bound
from outdraft.options.base import NESTED
from outdraft.options.errors import OutdraftError
from outdraft.options.paths import user_path

T = TypeVar("T")
RECIPE = "auto"
_HEAD = "head"  # the role
_log = logging.getLogger("outdraft.notes")


def choose_default(
    fill: Callable[[Recipe, Callable[[], Companions]], Speculation],
    companions: Callable[[], Companions],
    head: str | Path | None,
) -> Combination:
    """The default, with what stands in for it. `fill`: the recipe with whatever was given besides.

    Raises `ConfigError` for what was given and does not fit.
    """
    beside, recipe = companions(), read_recipe(RECIPE)
    if head is not None or beside.get(_HEAD):
        beside = without_draft_model(beside)
    whose = next(slot.drafter for slot in slots_of(recipe.drafter.name, recipe.drafter.options) if slot.role == _HEAD)
    kind = _kind_of(head) if head is not None else _kind_beside(beside.get(_HEAD, {}), whose)
    if kind is not None:
        recipe = replace(recipe, drafter=_with_head(recipe.drafter, whose, kind))
    chosen, bare = combine(fill(recipe, lambda: beside)), combine(fill(recipe, dict))
    return replace(chosen, instead=(bare, combine(Speculation())))


def fitting(network: Network, combination: Combination, guard: float | None) -> Combination:
    """What was asked for; where nothing was, what the default is over this network."""
    if combination.instead is None:
        return combination
    bound, on_cuda = find_bound(network, guard), network.device.type == "cuda"
    where = f"{str(network.dtype).removeprefix('torch.')} on {network.device}"
    if on_cuda and not (bound or network.exact):
        _tell(
            f"look-ups and drafts speculate by default ({where}); in a tree of guesses rounding may decide a near-tie "
            "otherwise than plain decoding: guard= decides those again, drafter='none' decodes plainly"
        )
    if network.kernels != "pytorch" or on_cuda or bound:
        return combination
    _tell(
        f"by default decoding is plain where the native kernels do not compute ({where}): "
        f"{_as_bfloat16(network)}name a drafter to speculate there (`outdraft methods`)"
    )
    return combination.instead[1]


def without_found(combination: Combination, error: OutdraftError, build: Callable[[Combination], T]) -> T:
    """Built without what was found beside the model, since the whole met `error`.

    Raises `error` where nothing was found, and what `build` raises where something else does not fit.
    """
    bare = combination if combination.instead is None else combination.instead[0]
    given = bare.recipe.get("roles", {})
    found = {role: place for role, place in combination.recipe.get("roles", {}).items() if role not in given}
    if not found:
        raise error
    built = build(bare)
    listed = " and ".join(f"{role.replace('_', ' ')} {place}" for role, place in found.items())
    _log.warning("%s beside the model cannot draft for it and is left out: %s", listed, error)
    return built


def _as_bfloat16(network: Network) -> str:
    """The cure that brings the kernels in; nothing where they do not know the model in any number format."""
    of_ours = isinstance(network, Decoder) and network.dtype != torch.bfloat16
    if not (of_ours and can_pack(network.config, torch.bfloat16, network.device)):
        return ""
    return "take dtype='bfloat16' (--dtype bfloat16), which they compute, or "


@cache
def _tell(line: str) -> None:
    """Once in a process."""
    _log.info("%s", line)


def _kind_of(head: str | Path) -> str | None:
    """The drafter of a head that was given; None: of no known kind, so it is the recipe's own."""
    from outdraft.models.files.foreign_heads import recognise  # not before: it needs torch

    name = str(head)
    place = zoo.path(name.removeprefix("zoo:")) if name.startswith("zoo:") else user_path(name)
    known = recognise(place) if place.is_dir() else None
    return None if known is None else find_learner(known[0]).drafter or known[0]


def _kind_beside(heads: Mapping[str, str], whose: str) -> str | None:
    """The drafter of a head that was found; None: the recipe's own, `whose`, or there is no head."""
    return None if not heads or whose in heads or "any" in heads else min(heads)


def _with_head(drafter: Choice, whose: str, kind: str) -> Choice:
    """The recipe's drafter with another one in the place of `whose`."""
    listed = [
        {**one, NESTED: kind} if isinstance(one, Mapping) and one.get(NESTED) == whose else one
        for one in drafter.options["drafters"]
    ]
    return replace(drafter, options={**drafter.options, "drafters": listed})
