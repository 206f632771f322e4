"""QuantSpec: the target on few bits drafts for the target.

Tiwari et al., "QuantSpec: self-speculative decoding with hierarchical quantized KV cache", 2025,
https://arxiv.org/abs/2502.10424.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.quantized_self.drafter import QuantizedSelfOptions, build, describe

METHOD = DrafterMethod(
    name="quantized_self",
    summary="the target's own weights on 4 or 8 bits, over its own cache or a view of it on 4 bits",
    build=build,
    options=QuantizedSelfOptions,
    paper=Paper(
        title="QuantSpec: self-speculative decoding with hierarchical quantized KV cache",
        year=2025,
        link="https://arxiv.org/abs/2502.10424",
    ),
    describe=describe,
)
