"""MagicDec: the target drafts over few of its own keys and values.

Sadhukhan et al., "MagicDec: breaking the latency-throughput tradeoff for long context generation with speculative
decoding", 2024, https://arxiv.org/abs/2408.11049.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.magicdec.drafter import MagicDecOptions, build

METHOD = DrafterMethod(
    name="magicdec",
    summary="the whole target over a few of its keys: for long contexts in large batches",
    build=build,
    options=MagicDecOptions,
    paper=Paper(
        title="MagicDec: breaking the latency-throughput tradeoff for long context generation with speculative "
        "decoding",
        year=2024,
        link="https://arxiv.org/abs/2408.11049",
    ),
)
