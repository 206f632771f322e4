"""Train LiLiCorr's network: DFlash's loss of the backbone, and a quarter of the cross-entropy over candidates.

NVIDIA, 2026, https://arxiv.org/abs/2608.20530. A slot counts as long as the text's tokens up to it are candidates. The
paper adds a penalty on candidates that the target rejects.
"""

from dataclasses import dataclass

from outdraft.drafters.lilicorr import KIND, MOST_LAYERS
from outdraft.drafters.lilicorr.net import LilicorrSizes
from outdraft.drafters.shared.blocks.learn import BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class LilicorrLearning(BlockLearning):
    """The network's shape, and how its blocks are trained."""

    candidates: int = 8  # of a slot
    chain_size: int = 128  # channels of a candidate; 0: those of the target; the paper's: 1024
    chain_layers: int = 2
    chain_heads: int = 4
    factor_dim: int = 128  # the paper's: 1024
    logit_scale: float = 8.0

    def __post_init__(self) -> None:
        BlockLearning.__post_init__(self)
        check_range(self, "candidates", "chain_heads", least=1, most=64)
        check_range(self, "chain_layers", least=1, most=MOST_LAYERS)
        check_range(self, "chain_size", least=0, most=1 << 14)
        check_range(self, "factor_dim", least=1, most=1 << 14)
        check_range(self, "logit_scale", least=0.1, most=1e3)
        if self.from_anchor:
            raise ConfigError("from_anchor=true: the anchor's slot has no candidates here: leave it out")
        if self.draft_vocab_size:
            raise ConfigError(
                f"draft_vocab_size={self.draft_vocab_size}: candidates are of the whole vocabulary here: leave it out"
            )
        if self.chain_size % self.chain_heads:
            raise ConfigError(f"chain_size={self.chain_size} is no multiple of chain_heads={self.chain_heads}")


def _sizes(options: LilicorrLearning) -> LilicorrSizes:
    return LilicorrSizes(
        lilicorr_candidate_topk=options.candidates,
        lilicorr_hidden_size=options.chain_size,
        lilicorr_num_layers=options.chain_layers,
        lilicorr_num_heads=options.chain_heads,
        lilicorr_factor_dim=options.factor_dim,
        lilicorr_logit_scale=options.logit_scale,
    )


LEARN = learn_blocks(
    KIND, LilicorrLearning, _sizes, summary="a block in one pass, and a chain over the candidates of all slots"
)
