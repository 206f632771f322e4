"""Draft & Verify: a fixed set of the target's sublayers drafts, the whole target verifies.

Zhang et al., "Draft & verify: lossless large language model acceleration via self-speculative decoding", 2023,
https://arxiv.org/abs/2309.08168.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.draft_verify.drafter import DraftVerifyOptions, build, describe

METHOD = DrafterMethod(
    name="draft_verify",
    summary="the target without some of its sublayers, which a search has chosen once",
    build=build,
    options=DraftVerifyOptions,
    paper=Paper(
        title="Draft & verify: lossless large language model acceleration via self-speculative decoding",
        year=2023,
        link="https://arxiv.org/abs/2309.08168",
    ),
    describe=describe,
)
