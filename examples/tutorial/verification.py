"""`ProbabilisticVerification`: the tutorial's three names, each with the residual that makes it exact.

    stochastic       accept x with min(1, p / q)
    deterministic    accept x where p >= q                 (accepts less; a gate before the same coin)
    conservative     accept x where p >= threshold * q     (a larger threshold is the stricter one)

With exact=False the gates are the tutorial's: what passes is kept without a coin, and nothing is drawn from a residual.
That is lossy, and every result says so.
"""

import secrets
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins

METHODS = ("stochastic", "deterministic", "conservative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What became of a draft: `tokens` are those accepted and one more, so there is always one."""

    tokens: tuple[int, ...]
    num_accepted: int
    is_bonus: bool  # the last token followed a draft that was accepted whole


@dataclass(frozen=True, slots=True)
class ProbabilisticVerification:
    """Which rule judges. Raises `ConfigError` for a method that there is not, and for a lossy "stochastic"."""

    method: str = "stochastic"
    threshold: float = field(default=0.5, kw_only=True)  # of "conservative"
    exact: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            known = list(METHODS)
            raise ConfigError(
                f"method={self.method!r} is unknown{near_miss(self.method, known)}; known: {', '.join(known)}"
            )
        if self.method == "stochastic" and not self.exact:
            raise ConfigError("'stochastic' is exact in any case: leave exact=False out, or take another method")
        if not self.threshold > 0:  # so that NaN is none either
            raise ConfigError(f"threshold={self.threshold:g}: must be above 0; 0.5 is the usual one")

    @property
    def verifier(self) -> str:
        return "rejection" if self.method == "stochastic" else "gated"

    @property
    def verifier_options(self) -> dict[str, Any]:
        if self.method == "stochastic":
            return {}
        return {"ratio": 1.0 if self.method == "deterministic" else self.threshold, "exact": self.exact}

    def verify_tokens(
        self, target_probs: Tensor, draft_probs: Tensor | None, draft_tokens: Seq[int], *, seed: int | None = None
    ) -> Verified:
        """Judge one draft of k tokens by the engine's own rule.

        target_probs: [k + 1, V], the target's at the positions of the tokens and after the last one. draft_probs: [k,
        V], what each token was drawn from; None: a deterministic draft. seed: of the coins.
        """
        tokens = [int(token) for token in draft_tokens]
        _check_shape("target_probs", target_probs, (len(tokens) + 1, target_probs.shape[-1]))
        if draft_probs is not None:
            _check_shape("draft_probs", draft_probs, (len(tokens), target_probs.shape[-1]))
        found = find("verifier", self.verifier)
        rule = found.build(make_options(found, self.verifier_options))
        seq = Sequence(
            id=0,
            request=Request(prompt_token_ids=(0,), params=SamplingParams(temperature=1.0)),
            tokens=[0],
            prompt_len=1,
            max_len=len(tokens) + 2,
            seed=secrets.randbits(63) if seed is None else seed,
            coupled=False,
            eos_token_ids=frozenset(),
            coins=verifier_coins,
            draft_coins=draft_coins,
        )
        packed = pack([seq], [chain(torch.tensor([0, *tokens]), draft_probs)])
        (verdict,) = rule(packed, target_probs, [seq.coins(seq)])
        count = len(verdict.path)
        return Verified(tokens=(*tokens[:count], verdict.token), num_accepted=count, is_bonus=verdict.bonus)


def _check_shape(name: str, given: Tensor, wanted: tuple[int, int]) -> None:
    if tuple(given.shape) != wanted:
        raise ConfigError(f"{name} has shape {tuple(given.shape)}; {wanted[0]} rows of {wanted[1]} are needed")
