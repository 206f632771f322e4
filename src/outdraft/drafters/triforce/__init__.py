"""TriForce: a small model drafts for the target over retrieved keys, which drafts for the target over all of them.

Sun et al., "TriForce: lossless acceleration of long sequence generation with hierarchical speculative decoding", 2024,
https://arxiv.org/abs/2404.11912.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.triforce.drafter import TriForceOptions, build

METHOD = DrafterMethod(
    name="triforce",
    summary="a small drafter, the target over retrieved keys, the target: for very long contexts",
    build=build,
    options=TriForceOptions,
    paper=Paper(
        title="TriForce: lossless acceleration of long sequence generation with hierarchical speculative decoding",
        year=2024,
        link="https://arxiv.org/abs/2404.11912",
    ),
)
