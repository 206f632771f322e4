"""The product's default policy: arm and depth by measured cost and measured acceptance; plain decoding where nothing
pays.

The formulas are those of Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding",
2022, https://arxiv.org/abs/2211.17192; choosing anew by running estimates is that of Liu, Park and Shen, "A drop-in
solution for on-the-fly adaptation of speculative decoding in large language models", 2025,
https://aclanthology.org/2025.acl-long.482. Hazards, the division of a batch and the exploration are ours.
"""

from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.core.method import PolicyMethod

METHOD = PolicyMethod(
    name="auto",
    summary="drafter and depth by measured cost and acceptance; plain decoding where nothing pays (the default)",
    build=AutoPolicy,
    options=AutoOptions,
)
