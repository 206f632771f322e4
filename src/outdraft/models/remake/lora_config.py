"""The sizes of low-rank changes (Hu et al. 2021, https://arxiv.org/abs/2106.09685)."""

from dataclasses import dataclass

from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """How much of a matrix may change."""

    rank: int = 8  # of the change
    alpha: float = 16.0  # the change is alpha / rank times B A

    def __post_init__(self) -> None:
        check_range(self, "rank", least=1, most=4096)
        check_range(self, "alpha", least=0.0)

    @property
    def scale(self) -> float:
        """Of the product of both factors."""
        return self.alpha / self.rank
