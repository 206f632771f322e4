"""Speculative sampling with an independent, smaller model of the same vocabulary.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192; Chen et al., "Accelerating large language model decoding with speculative sampling",
2023, https://arxiv.org/abs/2302.01318.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.draft_model.drafter import DraftModelOptions, build, describe

METHOD = DrafterMethod(
    name="draft_model",
    summary="a smaller model of the same vocabulary writes ahead; a chain, or a tree",
    build=build,
    options=DraftModelOptions,
    paper=Paper(
        title="Fast inference from transformers via speculative decoding",
        year=2022,
        link="https://arxiv.org/abs/2211.17192",
    ),
    describe=describe,
    shape_of=lambda options: "chain" if options.is_chain else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 3}},
)
