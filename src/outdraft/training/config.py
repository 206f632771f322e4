"""The loop's numbers, and its learning rate: warm-up, stable, decay, whose end need not be known at the start.

    1 |    ____________________
      |   /                    \\           warm-up: linear; stable: as long as there is time;
      |  /                      \\          decay: linear to zero over a share of the steps done
    0 +-/------------------------\\---

MiniCPM (Hu et al. 2024, https://arxiv.org/abs/2404.06395). A decay that begins within the warm-up begins at the rate
that the warm-up has reached. A checkpoint of the stable phase can be continued for ever.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

NO_END = 1 << 30  # steps of a run that ends by its seconds


def decay_end(decay_at: int, share: float) -> int:
    """The step at which a decay ends: it lasts a share of the steps done when it starts, and one at least."""
    return decay_at + max(1, round(decay_at * share))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """The loop's numbers: schedule, batch, optimiser, reporting."""

    watching: ClassVar[tuple[str, ...]] = ("eval_every", "patience", "save_every", "seed")  # these change no step
    steps: int = 0  # ceiling; the signal to finish may come earlier
    seconds: float = 0.0  # of all steps together, in which the decay ends too, without evaluations; 0: no bound
    batch_tokens: int = 16384  # of a step; 0 in a plan: by how much text there is
    micro_tokens: int = 4096  # per forward of one worker
    seq_len: int = 512
    final_seq_len: int = 0  # sequence length of the decay phase; 0 = seq_len
    warmup: int = 100
    decay_at: int = 0  # step at which the decay starts, which must end by `steps`; 0 = so that it ends there
    decay_share: float = 0.18  # the decay lasts this share of the steps done when it starts
    lr: float = 2e-3  # AdamW: embeddings, norms, biases
    muon_lr: float = 3e-3  # Muon: matrices; 0 = AdamW for everything
    weight_decay: float = 0.01
    clip: float = 1.0
    eval_every: int = 200
    patience: int = 0  # evaluations without a better score after which training ends; 0: it goes on to the end
    save_every: int = 200
    seed: int = 1

    def __post_init__(self) -> None:
        check_range(self, "micro_tokens", "seq_len", "eval_every", "save_every", least=1)
        check_range(self, "batch_tokens", "steps", "final_seq_len", "patience", "warmup", "decay_at", "seed", least=0)
        check_range(self, "seconds", "lr", "muon_lr", "weight_decay", least=0.0)
        check_range(self, "decay_share", "clip", least=1e-6)
        if self.seconds and self.decay_at:
            raise ConfigError(
                f"seconds={self.seconds:g}, decay_at={self.decay_at}: of a run of so many seconds the decay starts by "
                "its share: leave decay_at out"
            )
        if self.steps and self.decay_at and (end := decay_end(self.decay_at, self.decay_share)) > self.steps:
            raise ConfigError(
                f"decay_at={self.decay_at} with decay_share={self.decay_share:g} would end at step {end}, behind "
                f"steps={self.steps}: let the decay start earlier, or leave decay_at out"
            )

    @property
    def extent(self) -> str:
        """How long a run is, for people."""
        if not self.seconds:
            return f"{self.steps} steps of {self.batch_tokens} tokens"
        most = f"at most {self.steps} " if self.steps < NO_END else ""
        return f"{most}steps of {self.batch_tokens} tokens for {self.seconds:g} seconds"

    @property
    def of_steps(self) -> dict[str, Any]:
        """What the steps of a run depend on, beside the seed."""
        return {name: value for name, value in asdict(self).items() if name not in self.watching}


class Schedule:
    """The rate's share of its peak at each step, and when training ends."""

    def __init__(self, config: LoopConfig) -> None:
        self.warmup = config.warmup
        self.share = config.decay_share
        self.end = config.steps
        self.decay_at = config.decay_at or max(1, round(config.steps / (1 + config.decay_share)))
        if config.decay_at:
            self.begin_decay(config.decay_at)
        self._seconds, self._most = config.seconds, config.steps
        self.is_asked = False  # the decay was asked for, so that no clock moves its end
        self._from: tuple[int, float] | None = None  # a step, and the seconds that were spent before it

    def begin_decay(self, step: int) -> None:
        """Start the decay at this step, unless it has begun."""
        self.is_asked = True
        if step <= self.decay_at:
            self.decay_at = step
            self.end = decay_end(step, self.share)

    def keep_time(self, step: int, spent: float) -> None:
        """Before each step, where seconds are bounded: let training end when they are spent, as fast as steps go now.

        The first step is not asked: it prepares what later ones use.
        """
        if not self._seconds or self.is_asked or not step:
            return
        first, before = self._from = self._from or (step, spent)
        if step == first:
            return
        left = round((self._seconds - spent) * (step - first) / max(spent - before, 1e-9))
        was_decaying = self.decaying(step)
        self.end = step + max(0, min(left, self._most - step))
        if not was_decaying:
            self.decay_at = max(step, round(self.end / (1 + self.share)))

    def decaying(self, step: int) -> bool:
        """Whether this step belongs to the decay."""
        return step >= self.decay_at

    def factor(self, step: int) -> float:
        warm = min(1.0, (min(step, self.decay_at) + 1) / max(1, self.warmup))
        if step < self.decay_at:
            return warm
        return warm * max(0.0, (self.end - step) / max(1, self.end - self.decay_at))
