"""Early exit: the target's first layers draft, the rest verify, with one set of weights and one cache.

Elhoushi et al., "LayerSkip: enabling early exit inference and self-speculative decoding", 2024,
https://arxiv.org/abs/2404.16710; Liu et al., "Kangaroo: lossless self-speculative decoding via double early exiting",
2024, https://arxiv.org/abs/2404.18911.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.early_exit.drafter import EarlyExitOptions, build

METHOD = DrafterMethod(
    name="early_exit",
    summary="the target's first layers draft, the others verify: one model, one cache",
    build=build,
    options=EarlyExitOptions,
    paper=Paper(
        title="LayerSkip: enabling early exit inference and self-speculative decoding",
        year=2024,
        link="https://arxiv.org/abs/2404.16710",
    ),
)
