"""N-Grammys: guesses from continuations in the text, and from the model's own bigrams.

Stewart et al., "The N-Grammys: accelerating autoregressive inference with learning-free batched speculation", 2024,
https://arxiv.org/abs/2411.03786.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.ngrammys.drafter import NgrammysOptions, build

METHOD = DrafterMethod(
    name="ngrammys",
    summary="frequent continuations of the text, then the model's own bigrams, which are computed once (no model)",
    build=build,
    options=NgrammysOptions,
    paper=Paper(
        title="The N-Grammys: accelerating autoregressive inference with learning-free batched speculation",
        year=2024,
        link="https://arxiv.org/abs/2411.03786",
    ),
    shape_of=lambda options: "tree",
)
