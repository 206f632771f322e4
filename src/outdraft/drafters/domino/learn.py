"""Train Domino's network on a frozen target, behind the texts' own tokens.

Domino, 2026, https://arxiv.org/abs/2605.29707. The paper's loss moves from the backbone's own scores to the corrected
ones; ours is of these throughout.
"""

from dataclasses import dataclass

from outdraft.drafters.domino import KIND
from outdraft.drafters.domino.net import DominoSizes
from outdraft.drafters.shared.blocks.learn import BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DominoLearning(BlockLearning):
    """The network's shape, and how its blocks are trained."""

    from_anchor: bool = True
    state: int = 1024  # of what is known of a block's tokens
    rank: int = 256  # of the correction
    prefix: int = 0  # slots that guess and are not corrected

    def __post_init__(self) -> None:
        BlockLearning.__post_init__(self)
        check_range(self, "state", "rank", least=1, most=4096)
        check_range(self, "prefix", least=0, most=63)


LEARN = learn_blocks(
    KIND,
    DominoLearning,
    lambda one: DominoSizes(gru_hidden_dim=one.state, emb_dim=one.rank, pure_draft_prefix_len=one.prefix),
    summary="a block in one pass, whose slots hear a recurrent state of the tokens before them",
)
