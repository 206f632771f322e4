"""What a scheduler is given."""

from dataclasses import dataclass

from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Limits of what runs and waits. Raises `ConfigError` for a number out of range.

    `prompt_share`: while others decode, reading prompts takes about this share of the time.
    """

    max_num_seqs: int = 64  # requests that run together
    max_num_batched_tokens: int = 512  # rows of prompts in one pass
    max_num_waiting: int | None = None  # requests that wait; None: any number
    prompt_share: float = 0.22

    def __post_init__(self) -> None:
        check_range(self, "max_num_seqs", "max_num_batched_tokens", least=1)
        check_range(self, "max_num_waiting", least=0)
        check_range(self, "prompt_share", least=0.01, most=0.99, note="of the time while others decode")
