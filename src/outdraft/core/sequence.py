"""A request under way: its tokens so far, and what the parts of the engine need to know of it.

The one invariant: exactly one emitted token, the *pending* one, is not in the target's cache; so between two rounds
`num_cached == len(tokens) - 1` (less while the prompt is still being read).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from outdraft.core.coins import Coins, DraftCoins
from outdraft.core.request import Request


@dataclass(slots=True, kw_only=True)
class Sequence:
    """Mutable state of one request. Only `decode.commit` changes tokens and `num_cached`."""

    id: int
    request: Request
    tokens: list[int]  # prompt, then output
    prompt_len: int
    max_len: int  # hard limit of tokens, prompt included
    seed: int
    coupled: bool  # the rule is the seed-coupled one: a sampled drafter shares the target's noise
    eos_token_ids: frozenset[int]
    coins: "Callable[[Sequence], Coins]"  # the verifier's coins of the coming round
    draft_coins: "Callable[[Sequence], DraftCoins]"
    find_stop: Callable[[int], bool] = field(default=lambda token: False)  # told each emitted token, in order
    num_cached: int = 0
    finish_reason: str | None = None
    prompt_ids: frozenset[int] = frozenset()
    output_counts: Counter[int] = field(default_factory=Counter)
    variant: str = ""  # the rounding of the weights that decode it, by name

    @property
    def pending(self) -> int:
        """The emitted token that no cache holds yet."""
        return self.tokens[-1]

    @property
    def num_output(self) -> int:
        """Tokens emitted so far."""
        return len(self.tokens) - self.prompt_len

    @property
    def output(self) -> list[int]:
        """Token ids emitted so far."""
        return self.tokens[self.prompt_len :]

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt but the pending token is cached."""
        return self.num_cached == len(self.tokens) - 1

    @property
    def room(self) -> int:
        """How many more tokens this sequence may emit."""
        by_request = self.request.params.max_tokens - self.num_output
        return min(by_request, self.max_len - len(self.tokens))

    def extend(self, token: int) -> str | None:
        """Append one emitted token; returns the reason if the text ends with it, else None."""
        params = self.request.params
        self.tokens.append(token)
        self.output_counts[token] += 1
        stops = token in params.stop_token_ids or (not params.ignore_eos and token in self.eos_token_ids)
        if stops or self.find_stop(token):
            self.finish_reason = "stop"
        elif self.room <= 0:
            self.finish_reason = "length"
        return self.finish_reason
