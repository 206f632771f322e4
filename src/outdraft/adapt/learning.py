"""How a draft learns beside its service: settings alone, which the engine checks and the learner reads."""

from dataclasses import dataclass
from typing import Literal

from outdraft.adapt.kinds import Cure
from outdraft.options.checked import check_fields
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_BYTES, check_range

_MOST_OLD = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How a draft learns beside its service. Raises `ConfigError` naming what is out of range."""

    lr: float = 3e-4  # AdamW: norms, tables, heads
    muon_lr: float = 1e-3  # Muon: matrices; 0: AdamW for everything
    rank: int = 0  # of what a matrix learns, and of a table, which takes little memory (`learn/low_rank.py`); 0: any
    layers: tuple[str, ...] = ()  # what learns: parts of the names of weights, as `fc` or `first.up`; (): all
    weigh: Literal["auto", "early", "late", "even"] = "auto"  # positions of a guess; auto: as the diagnosis says
    clip: float = 1.0
    share: float = 0.75  # of the way from where learning began to what was learned, at which a candidate lies
    step_tokens: int = 1024  # rows of a step
    held_out: float = 0.2  # the share of requests that only judge
    replay: float = 0.3  # the share of a step that is of earlier requests
    trained: float = 0.2  # the share that is of the draft's own training, where answers.jsonl lies beside it
    epochs: float = 4.0  # times that what was served is learned from, where there is time; 1: once, and the replays
    kept: int = 2000  # earlier requests that are kept for it, each as likely as any
    window: int = 256  # tokens of a prompt that are read before the answer, the last ones
    depth: int = 5  # tokens of a guess that are judged
    temperature: float = 1.0  # at which distributions are compared, in learning (0: at 1) and in judging
    states_bytes: int = 1 << 28  # of the target's states that are kept, so that a request is read once

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "lr", "muon_lr", least=0.0, most=1.0)
        check_range(self, "rank", least=0, most=1 << 16)
        check_range(self, "clip", least=1e-6)
        check_range(self, "step_tokens", least=64, most=1 << 20)
        check_range(self, "held_out", "replay", "trained", least=0.0, most=0.9)
        if self.replay + self.trained > _MOST_OLD:
            raise ConfigError(
                f"replay={self.replay:g}, trained={self.trained:g}: give at most {_MOST_OLD} together, so that "
                "something new is learned"
            )
        check_range(self, "epochs", least=1.0, most=1000.0)
        check_range(self, "kept", least=1, most=1 << 20)
        check_range(self, "window", "depth", least=1, most=1 << 16)
        check_range(self, "share", least=0.1, most=1.0)
        check_range(self, "temperature", least=0.0, most=10.0)
        check_range(self, "states_bytes", least=0, most=MOST_BYTES)

    @property
    def cure(self) -> Cure:
        """How is learned while no diagnosis says anything else."""
        return {"early": Cure.LEARN_EARLY, "late": Cure.LEARN_LATE}.get(self.weigh, Cure.LEARN)

    @property
    def longest_window(self) -> int:
        """Tokens of a prompt that are kept: `Cure.LEARN_LATE` reads twice as many as the others."""
        return self.window * (2 if self.weigh in ("auto", "late") else 1)
