"""A request's words on speculation: read in the forms in which users give them, and settled by what its engine holds.

    False                                      plain decoding
    {"method": "...", "policy": "fixed", ...}  the fields of `Speculative`, or that record itself

What is not held is refused by name, before any work. A rule is one that ships and is lossless, or the engine's own:
nothing that a request names is imported.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from outdraft.core.registry import find, names
from outdraft.core.request import Request
from outdraft.options.errors import RequestError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown
from outdraft.options.speculative import FIXED, Held, Settled, Speculative

_FIELDS = tuple(one.name for one in fields(Speculative))


def read_speculative(given: Any) -> Speculative | None:
    """The words as a record; None: none were given. Raises `RequestError` for anything else."""
    if given is None or isinstance(given, Speculative):
        return given
    if given is False:
        return Speculative(num_speculative_tokens=0)
    if not isinstance(given, Mapping):
        raise RequestError(
            f"speculative={shown(given)} must be False (plain decoding) or a mapping with {', '.join(_FIELDS)}"
        )
    for key in given:
        if key not in _FIELDS:
            raise RequestError(
                f"speculative takes no {shown(key)}{near_miss(str(key), _FIELDS)}; it takes {', '.join(_FIELDS)}"
            )
    return Speculative(**given)


def settle(request: Request, held: Held) -> Settled:
    """What the request's words mean in this engine. Raises `RequestError` naming what is not held, and what is."""
    asked, count = request.speculative or Speculative(), request.most_drafted
    policy = held.policy if asked.policy is None else asked.policy
    if policy not in (held.policy, FIXED):
        known = " and ".join(dict.fromkeys(one for one in (held.policy, FIXED) if one))
        raise RequestError(f"policy {shown(policy)} is not held here: held are {known}")
    arm = _arm(asked.method, held)
    is_fixed, depth = policy == FIXED, None
    most = held.num_speculative_tokens
    if count is not None:
        most = count if is_fixed or most is None else min(count, most)
    if is_fixed and policy != held.policy:
        if arm is None and len(held.methods) > 1:
            raise RequestError(
                f"policy {FIXED!r} needs a method, which guesses in every round: held are {', '.join(held.methods)}"
            )
        depth = most or 0
    only = arm if arm is not None else 0 if len(held.methods) == 1 or is_fixed else None
    return Settled(
        told=Speculative(
            method=(held.name_of(only) or None) if only is not None else None,
            num_speculative_tokens=most,
            verifier=asked.verifier or held.verifier or None,
            policy=policy or None,
        ),
        arm=arm,
        resting=frozenset() if arm is None else frozenset(range(len(held.methods))) - {arm},
        depth=depth,
        rule=_rule(asked.verifier, held, range(len(held.shapes)) if only is None or not most else (only,)),
    )


def _arm(method: str | None, held: Held) -> int | None:
    if method is None:
        return None
    if method not in held.methods:
        listed = ", ".join(held.methods) or "none by name"
        raise RequestError(
            f"method {shown(method)} is not held here: held are {listed}; speculative=false is plain decoding"
        )
    return held.methods.index(method)


def _rule(name: str | None, held: Held, arms: Any) -> str | None:
    """The rule in place of the engine's own, if another one is named. `arms`: those that may guess."""
    if name is None or name == held.verifier:
        return None
    known = names("verifier")
    if name not in known:
        raise RequestError(
            f"verifier {shown(name)} is not known{near_miss(name, known)}; those that keep the model's distribution "
            f"are {_lossless()}"
        )
    rule = find("verifier", name)
    if not rule.lossless:
        raise RequestError(
            f"verifier {name!r} may change the distribution, and this engine was not made with it: take one of "
            f"{_lossless()}"
        )
    trees = [held.name_of(arm) for arm in arms if arm < len(held.shapes) and held.shapes[arm] == "tree"]
    if trees and "tree" not in rule.judges:
        fit = [one for one, shape in zip(held.methods, held.shapes, strict=True) if shape != "tree"]
        cure = f"name a method that drafts chains ({', '.join(fit)}), or " if fit else "take "
        raise RequestError(
            f"verifier {name!r} judges chains only, and {trees[0]!r} may draft trees: {cure}a verifier for trees, "
            "such as 'auto'"
        )
    return name


def _lossless() -> str:
    return ", ".join(name for name in names("verifier") if find("verifier", name).lossless)
