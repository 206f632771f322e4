"""Two more after a guess that was accepted whole, one fewer after any other: Hugging Face's "heuristic" schedule.

Gante, "Assisted generation: a new direction toward low-latency text generation", 2023,
https://huggingface.co/blog/assisted-generation. Data in: sequences and events; data out: one budget each, with a depth
of its own for every sequence.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.control.shared.limits import allowed
from outdraft.core.events import StepEvent
from outdraft.core.method import Paper, PolicyMethod
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HeuristicOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 20  # how many tokens are drafted along the longest path, at most
    start: int = 5  # how many tokens the first guess of a sequence has
    rise: int = 2  # how many tokens are added after a guess that was accepted whole
    fall: int = 1  # how many tokens are taken away after any other guess

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "start", "rise", "fall", least=1, most=MOST_NODES)


class HeuristicPolicy:
    """The depth of each sequence."""

    def __init__(self, options: HeuristicOptions) -> None:
        self._options = options
        self._depths: dict[int, int] = {}

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """The depth of the moment."""
        most = self._options.num_speculative_tokens
        return [
            Budget(depth=allowed(seq, min(most, self._depths.setdefault(seq.id, self._options.start)))) for seq in seqs
        ]

    def update(self, events: Seq[StepEvent]) -> None:
        """Rise and fall; a round in which nothing was drafted says nothing."""
        options = self._options
        for event in events:
            depth = self._depths.get(event.seq_id)
            if depth is None or not event.draft_depth:
                continue
            whole = event.num_accepted == event.draft_depth
            depth = min(depth + options.rise, max(1, options.num_speculative_tokens)) if whole else depth - options.fall
            self._depths[event.seq_id] = max(1, depth)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._depths.pop(seq.id, None)


def build(options: HeuristicOptions, arms: Seq[Arm]) -> HeuristicPolicy:
    """It does not choose among the arms: the first is asked."""
    return HeuristicPolicy(options)


METHOD = PolicyMethod(
    name="heuristic",
    summary="two tokens more after a guess accepted whole, one fewer after any other",
    build=build,
    options=HeuristicOptions,
    paper=Paper(
        title="Assisted generation: a new direction toward low-latency text generation",
        year=2023,
        link="https://huggingface.co/blog/assisted-generation",
    ),
)
