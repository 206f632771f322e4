"""A running request: its tokens so far, and the state that the parts of the engine share about it.

The one invariant: exactly one emitted token, the *pending* one, is not in the target's cache; so between two rounds
`num_cached == len(tokens) - 1` (less while the prompt is still being read).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from outdraft.core.coins import Coins, DraftCoins
from outdraft.core.constraint import Constraint, Form
from outdraft.core.request import Request
from outdraft.options.speculative import UNASKED, Settled

CHUNK = 512  # rows in which a prompt is read where its bits depend on that


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a text may bring into the pass that comes, as the scheduler says."""

    max_chunk: int = CHUNK  # tokens of it that are read before the pending one
    drafts: bool = True  # False: there is no room for a guess


@dataclass(slots=True, kw_only=True)
class Sequence:
    """Mutable state of one request. Once it has begun, `decode.commit` alone adds tokens and cached rows."""

    id: int
    request: Request
    tokens: list[int]  # prompt, then output
    prompt_len: int
    max_len: int  # hard limit of tokens, prompt included
    seed: int
    coupled: bool  # the rule is the seed-coupled one: a sampled drafter shares the target's noise
    prefers_drawn: bool = True  # its rule accepts more of guesses that are drawn than of the likeliest ones
    eos_token_ids: frozenset[int]
    ends: frozenset[int] = field(init=False)  # ids that end its text, and are no part of it: those, and its stop ids
    coins: "Callable[[Sequence], Coins]"  # the verifier's coins of the coming round
    draft_coins: "Callable[[Sequence], DraftCoins]"
    asked_at: float | None = None  # seconds by the engine's clock when it was asked for, from which a timeout counts
    find_stop: Callable[[int], bool] | None = None  # gets each emitted token, in order: does the text end with it?
    num_cached: int = 0
    num_taken_over: int = 0  # rows of its prompt that an earlier text had left
    num_prompt_scored: int = 0  # prompt tokens after the first whose log probabilities have been reported
    num_preempted: int = 0  # times that it gave back its memory, and was read again
    turn: Turn = Turn()  # of the pass that comes, or is under way
    finish_reason: str | None = None
    prompt_ids: frozenset[int] = frozenset()
    output_counts: Counter[int] = field(default_factory=Counter)
    variant: str = ""  # the rounding of the weights that decode it, by name
    first_position: int = 0  # what the model is given for token 0 (`RopeConfig.first_position`); the target sets it
    constraint: Constraint | None = None  # which tokens may follow; it gets every emitted one
    settled: Settled = UNASKED  # what its request's words on speculation mean in this engine
    speculates: bool = True  # False: the drafter has failed for it, and it goes on with plain decoding
    beside: "Sequence | None" = None  # its text behind a negative prompt, which is read before it is judged
    is_greedy: bool = field(init=False)  # what its settings say once for all its tokens
    _edits: bool = field(init=False)
    _looks_back: bool = field(init=False)
    _masks: bool = field(init=False)
    _forced_until: int = field(init=False)  # tokens of the prompt and the forced prefix

    def __post_init__(self) -> None:
        params, own = self.request.params, self.eos_token_ids
        self.ends = frozenset() if params.ignore_eos else own
        if params.stop_token_ids:
            self.ends = self.request.once.of(("ends", own), lambda: self.ends | frozenset(params.stop_token_ids))
        self.is_greedy, self._edits, self._looks_back = params.greedy, params.edits_logits, params.depends_on_history
        self._masks = bool(params.bad_words or params.min_tokens)
        self._forced_until = self.prompt_len + len(params.prefix_ids)

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
    def num_unread(self) -> int:
        """Tokens before the pending one that no cache holds yet."""
        return len(self.tokens) - 1 - self.num_cached

    @property
    def num_to_read(self) -> int:
        """Tokens of its prompt, and of what stands beside it, that are to be read."""
        return self.num_unread + (0 if self.beside is None else self.beside.num_unread)

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt but the pending token is cached, and what is read beside it."""
        return len(self.tokens) - 1 == self.num_cached and (self.beside is None or not self.beside.num_unread)

    def reaches(self, chunk: int) -> bool:
        """Whether a pass that reads so many tokens of it, and of what is beside it, may judge its pending token."""
        return self.num_unread <= chunk and (self.beside is None or self.beside.num_unread <= chunk)

    @property
    def least_rows(self) -> int:
        """Rows that it brings into the pass at least: a prompt's chunk, and the pending token where that is reached."""
        return min(self.num_unread, self.turn.max_chunk) + self.reaches(self.turn.max_chunk)

    @property
    def scores_prompt(self) -> bool:
        """Whether log probabilities of its prompt are asked for, and not all reported yet."""
        return self.request.params.prompt_logprobs is not None and self.num_prompt_scored < self.prompt_len - 1

    @property
    def room(self) -> int:
        """How many more tokens this sequence may emit."""
        by_context, wanted = self.max_len - len(self.tokens), self.request.params.max_tokens
        return by_context if wanted is None else min(wanted + self.prompt_len - len(self.tokens), by_context)

    @property
    def longest(self) -> int:
        """How many tokens the text may come to have, the prompt included."""
        wanted = self.request.params.max_tokens
        return self.max_len if wanted is None else min(self.max_len, self.prompt_len + wanted)

    def position(self, i: int) -> int:
        """The position that the model is given for token i: its index (and `first_position`), or the prompt's own.

        What follows such a prompt goes on behind its last one, which is the largest.
        """
        given = self.request.prompt_positions
        if given is None:
            return self.first_position + i
        return self.first_position + (given[i] if i < self.prompt_len else given[-1] + 1 + i - self.prompt_len)

    @property
    def edits_logits(self) -> bool:
        """Whether logits are changed before the temperature: by its settings, or by its constraint."""
        return self._edits or self.constraint is not None or len(self.tokens) < self._forced_until

    @property
    def depends_on_history(self) -> bool:
        """Whether the processed distribution at a node depends on the tokens before it, beyond the model's own view."""
        return self._looks_back or self.constraint is not None or len(self.tokens) < self._forced_until

    @property
    def masks_by_history(self) -> bool:
        """Whether the tokens before a node say which may follow it."""
        return self._masks or self.constraint is not None or len(self.tokens) < self._forced_until

    def extend(self, token: int) -> str | None:
        """Append one emitted token; returns the reason if the text ends with it, else None."""
        self.tokens.append(token)
        self.output_counts[token] += 1
        if self.constraint is not None:
            self.constraint.advance(token)
        is_last = token in self.ends or (self.find_stop is not None and self.find_stop(token))
        form = self.constraint  # most texts have none, and a protocol is slow to ask
        if is_last or (form is not None and isinstance(form, Form) and form.is_over()):
            self.finish_reason = "stop"
        elif self.room <= 0:
            self.finish_reason = "length"
        return self.finish_reason
