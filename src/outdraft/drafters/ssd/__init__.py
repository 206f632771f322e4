"""SSD: the next guess is prepared for several outcomes of the pass under way.

Kumar et al., "Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.ssd.drafter import SsdOptions, build

METHOD = DrafterMethod(
    name="ssd",
    summary="prepares the next guess for several outcomes of the pass under way",
    build=build,
    options=SsdOptions,
    paper=Paper(title="Speculative speculative decoding", year=2026, link="https://arxiv.org/abs/2603.03251"),
)
