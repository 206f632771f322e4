"""Warm-up, stable, decay: a learning rate whose end need not be known at the start.

    1 |    ____________________
      |   /                    \\           warm-up: linear; stable: as long as there is time;
      |  /                      \\          decay: linear to zero over a share of the steps done
    0 +-/------------------------\\---
MiniCPM (Hu et al. 2024, https://arxiv.org/abs/2404.06395). A decay that begins within the warm-up
begins at the rate that the warm-up has reached. A checkpoint of the stable phase can be continued for ever.
"""

from outdraft.training.config import LoopConfig, decay_end


class Schedule:
    """The rate's share of its peak at each step, and when training ends."""

    def __init__(self, config: LoopConfig) -> None:
        self.warmup = config.warmup
        self.share = config.decay_share
        self.end = config.steps
        self.decay_at = config.decay_at or max(1, round(config.steps / (1 + config.decay_share)))
        if config.decay_at:
            self.begin_decay(config.decay_at)

    def begin_decay(self, step: int) -> None:
        """Start the decay at this step, unless it has begun."""
        if step <= self.decay_at:
            self.decay_at = step
            self.end = decay_end(step, self.share)

    def decaying(self, step: int) -> bool:
        """Whether this step belongs to the decay."""
        return step >= self.decay_at

    def factor(self, step: int) -> float:
        warm = min(1.0, (min(step, self.decay_at) + 1) / max(1, self.warmup))
        if step < self.decay_at:
            return warm
        return warm * max(0.0, (self.end - step) / max(1, self.end - self.decay_at))
