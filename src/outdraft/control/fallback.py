"""After lost guesses a text's next ones are shorter, down to plain decoding for some tokens; success brings them back.

    step       0         1   2   3            with depths=(2, 1, 0)
    at most    inner's   2   1   nothing      tokens of a guess

    lost       at least `share` of a guess was rejected
    down       after `rounds` lost guesses in a row
    up         after `recover` guesses in a row that were not lost
    plain      for `tokens` tokens; then one guess of the step above is tried, and if it is lost, `tokens` more

The policy `inner` says how much is guessed where nothing has failed, and hears of every round; its budgets are only
cut. Data in: sequences and events; data out: one budget each.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod
from outdraft.core.policy import Arm, Budget, Policy, spared_by
from outdraft.core.registry import AnyPolicy, find, make_options
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range, and for an inner policy that there is not."""

    num_speculative_tokens: int = 8  # how many tokens are drafted along the longest path, at most
    # the policy that says how much is guessed where nothing has failed: a name, or {"name": NAME, OPTION: VALUE}
    inner: str | Mapping[str, Any] = "fixed"
    rounds: int = 3  # after how many lost guesses in a row the next ones are shorter
    share: float = 1.0  # a guess is lost if at least this share of its tokens was rejected; 1: all of them
    # the most tokens of a guess, from step to step; 0 is plain decoding, and without any depth nothing falls back
    depths: tuple[int, ...] = (2, 1, 0)
    tokens: int = 16  # how many tokens are decoded plainly before a guess is tried again
    recover: int = 2  # after how many guesses in a row that were not lost the next ones are longer

    def __post_init__(self) -> None:
        object.__setattr__(self, "depths", tuple(self.depths))
        check_range(self, "num_speculative_tokens", "depths", least=0, most=MOST_NODES)
        check_range(self, "rounds", "tokens", "recover", least=1)
        check_range(self, "share", least=0.01, most=1)
        if any(after >= before for before, after in pairwise(self.depths)):
            raise ConfigError(f"depths={self.depths}: each must be less than the one before it, as in (2, 1, 0)")
        self.read_inner()

    def read_inner(self) -> tuple[AnyPolicy, PolicyOptions]:
        """The inner policy and its options; it guesses at most what this one may, unless it is given less."""
        table = {"name": self.inner} if isinstance(self.inner, str) else dict(self.inner)
        if "name" not in table:
            raise ConfigError(f"inner={table!r} names no policy; for example {{'name': 'history', 'least': 3}}")
        method = find("policy", table.pop("name"))
        return method, make_options(method, {"num_speculative_tokens": self.num_speculative_tokens, **table})


@dataclass(slots=True, kw_only=True)
class Fallbacks:
    """What falling back came to, over all sequences."""

    falls: int = 0  # steps down, those after a guess that was tried and lost among them
    plain_tokens: int = 0  # tokens without a guess where the inner policy would have made one
    recoveries: int = 0  # steps up that led back to what the inner policy says


@dataclass(slots=True)
class _Stand:
    step: int = 0  # 0: the inner policy's own depth; i: depths[i - 1] at most
    lost: int = 0  # guesses in a row
    kept: int = 0  # guesses in a row that were not lost
    plain: int = 0  # tokens left before a guess is tried
    is_wanted: bool = False  # whether the inner policy wanted a guess in this round


class FallbackPolicy:
    """A stand of each sequence. `inner`: the policy whose budgets are cut."""

    def __init__(self, options: FallbackOptions, inner: Policy) -> None:
        self.counts = Fallbacks()
        self._options, self._inner = options, inner
        self._most = (options.num_speculative_tokens, *options.depths)  # tokens of a guess on each step
        self._stands: dict[int, _Stand] = {}

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The inner policy's budgets, none deeper than its sequence's step allows."""
        return [self._cut(seq, budget) for seq, budget in zip(seqs, self._inner.plan(seqs), strict=True)]

    def _cut(self, seq: Sequence, budget: Budget) -> Budget:
        stand = self._stands.setdefault(seq.id, _Stand())
        most, stand.is_wanted = self._most[stand.step], budget.depth > 0
        return budget if budget.depth <= most else replace(budget, depth=most)

    def update(self, events: Seq[StepEvent]) -> None:
        """Judge each guess; count what was decoded plainly."""
        self._inner.update(events)
        for event in events:
            if (stand := self._stands.get(event.seq_id)) is None:
                continue
            if event.draft_depth:
                self._judge(stand, (event.draft_depth - event.num_accepted) / event.draft_depth)
            elif stand.plain and event.tokens:
                self._wait(stand)

    def _judge(self, stand: _Stand, rejected: float) -> None:
        options = self._options
        if rejected >= options.share:
            stand.lost, stand.kept = stand.lost + 1, 0
            if stand.lost >= options.rounds and stand.step < len(options.depths):
                self.counts.falls += 1
                stand.step, stand.lost = stand.step + 1, 0
                stand.plain = options.tokens if self._most[stand.step] == 0 else 0
            return
        stand.lost, stand.kept = 0, stand.kept + 1
        if stand.step and stand.kept >= options.recover:
            stand.step, stand.kept = stand.step - 1, 0
            self.counts.recoveries += stand.step == 0

    def _wait(self, stand: _Stand) -> None:
        self.counts.plain_tokens += stand.is_wanted
        stand.plain -= 1
        if not stand.plain:  # on trial: one lost guess leads back here
            stand.step, stand.lost = stand.step - 1, self._options.rounds - 1

    def end(self, seqs: Seq[Sequence]) -> None:
        self._inner.end(seqs)
        for seq in seqs:
            self._stands.pop(seq.id, None)

    def spare(self, seq: Sequence, crowd: int) -> frozenset[int]:
        return spared_by(self._inner, seq, crowd)


def build(options: FallbackOptions, arms: Seq[Arm]) -> FallbackPolicy:
    """Around the inner policy, which chooses among the arms."""
    method, own = options.read_inner()
    return FallbackPolicy(options, method.build(own, arms))


METHOD = PolicyMethod(
    name="fallback",
    summary="shorter guesses after lost ones, down to plain decoding for a while, around another policy",
    build=build,
    options=FallbackOptions,
)
