"""CTC drafting: slots over the vocabulary and a blank, whose repeats and blanks collapse into guesses of any length.

Wen et al., "Speculative decoding with CTC-based draft model for LLM inference acceleration", 2024,
https://arxiv.org/abs/2412.00061.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.ctc.drafter import CtcOptions, build

METHOD = DrafterMethod(
    name="ctc",
    summary="slots over the vocabulary and a blank that collapse into guesses of any length; a chain or a tree",
    build=build,
    options=CtcOptions,
    paper=Paper(
        title="Speculative decoding with CTC-based draft model for LLM inference acceleration",
        year=2024,
        link="https://arxiv.org/abs/2412.00061",
    ),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
