"""The product's default policy: arm and depth by measured cost and measured acceptance, with plain decoding as its floor.

The formulas are those of Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding",
2022, https://arxiv.org/abs/2211.17192; choosing anew each round by estimates is Liu, Park and Shen's "On-the-fly",
ACL 2025. The exploration is ours.
"""

from outdraft.control.auto.policy import AutoOptions, build
from outdraft.core.registry import Method

METHOD = Method(
    name="auto",
    kind="policy",
    summary="drafter and depth by measured cost and acceptance; plain decoding where nothing pays (the default)",
    build=build,
    options=AutoOptions,
)
