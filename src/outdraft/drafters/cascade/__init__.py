"""CS Drafting: drafters that draft for each other, the larger ones where it counts most.

Chen et al., "Cascade speculative drafting for even faster LLM inference", 2023, https://arxiv.org/abs/2312.11462.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.cascade.drafter import CascadeOptions, build, describe

METHOD = DrafterMethod(
    name="cascade",
    summary="drafters that draft for each other, down to a look-up in the text",
    build=build,
    options=CascadeOptions,
    paper=Paper(
        title="Cascade speculative drafting for even faster LLM inference",
        year=2023,
        link="https://arxiv.org/abs/2312.11462",
    ),
    describe=describe,
)
