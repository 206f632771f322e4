"""Fill tokens and Jacobi iteration: the target's own answers to a wrong guess are the next guess.

Santilli et al., "Accelerating transformer inference for translation via parallel decoding", 2023,
https://arxiv.org/abs/2305.10427.

    window     w0 w1 w2 w3      guesses for the places after the pending token P; at first fill tokens
    the pass   P  w0 w1 w2 w3   says o0 o1 o2 o3 o4: what the target puts after each
    accepted   w0 = o0          so P w0 stay, o1 is the new pending token (j = 1 accepted)
    then       o2 o3 o4 f       answers behind the first wrong guess move up, fresh fill tokens follow

Every pass settles at least one token, so there are never more passes than tokens. Data in: text and the argmax at all
nodes of the last pass; data out: a chain.
"""

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Literal

import torch

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import usable_depth
from outdraft.drafters.shared.plain import OneByOne
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range

FILLS = ("prompt", "random", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class JacobiOptions:
    """The window and what fills it. Raises `ConfigError` naming what is out of range."""

    window: int = 16  # how many guesses are kept (m); a budget of less depth shows the target the first of them
    # what the window begins with: tokens of the prompt, random tokens of the vocabulary, or always `fill_token`
    fill: Literal["prompt", "random", "constant"] = "prompt"
    fill_token: int = 0  # the token id that fill="constant" takes, for example that of a padding token
    seed: int = 0  # the seed of the random choices of `fill`; no text depends on it

    def __post_init__(self) -> None:
        check_range(self, "window", least=1, most=MOST_NODES)
        if self.fill not in FILLS:
            raise ConfigError(f"fill={self.fill!r} is not known: take {', '.join(FILLS)}")


@dataclass(slots=True)
class _Iteration:
    dice: random.Random
    window: list[int] = field(default_factory=list)  # w0: the place after the pending token
    draft: Draft | None = None  # the last guess


class JacobiDrafter(OneByOne):
    """One window for each sequence."""

    def __init__(self, options: JacobiOptions, vocab_size: int) -> None:
        self._options = options
        self._vocab_size = vocab_size
        self._states: dict[int, _Iteration] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A window of fill tokens each."""
        for seq in seqs:
            state = self._states[seq.id] = _Iteration(random.Random(self._options.seed))
            self._fill(seq, state)

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """The window, as far as the budget lets it be shown."""
        state = self._states[seq.id]
        state.draft = chain([seq.pending, *state.window[: usable_depth(seq, budget)]])
        return state.draft

    def observe(self, seen: Seq[Seen]) -> None:
        """Answers behind the accepted ones become guesses; the places that the text has passed go."""
        for one in seen:
            state = self._states.get(one.seq.id)
            if state is None or one.verdict is None:
                continue
            passed = known = len(one.verdict.path) + 1
            answers = list[int]()
            if one.logits is not None and one.draft is not None and _begins(one.draft, state.draft):
                answers, known = one.logits[passed:].argmax(-1).tolist(), one.draft.num_nodes
            state.window, state.draft = answers + state.window[known:], None
            self._fill(one.seq, state)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._states.pop(seq.id, None)

    def _fill(self, seq: Sequence, state: _Iteration) -> None:
        options = self._options
        prompt = seq.request.prompt_token_ids
        while len(state.window) < options.window:
            if options.fill == "constant":
                state.window.append(options.fill_token)
            elif options.fill == "random":
                state.window.append(state.dice.randrange(self._vocab_size))
            else:
                state.window.append(state.dice.choice(prompt))


def _begins(judged: Draft, shown: Draft | None) -> bool:
    """Whether what was judged is the window as it was shown, or what a policy or memory has left of it."""
    if judged is shown or shown is None:
        return shown is not None
    count = judged.num_nodes
    return torch.equal(judged.tokens, shown.tokens[:count]) and torch.equal(judged.parents, shown.parents[:count])


def build(options: JacobiOptions, port: TargetPort) -> JacobiDrafter:
    """Raises `ConfigError` if the fill token is no token of the target."""
    if not 0 <= options.fill_token < port.facts.vocab_size:
        raise ConfigError(
            f"fill_token={options.fill_token}: the target's vocabulary has {port.facts.vocab_size} tokens"
        )
    return JacobiDrafter(options, port.facts.vocab_size)


METHOD = DrafterMethod(
    name="jacobi",
    summary="fill tokens, then the target's own answers to its last guess, until they agree (no model)",
    build=build,
    options=JacobiOptions,
    paper=arxiv("2305.10427", "Accelerating transformer inference for translation via parallel decoding"),
)
