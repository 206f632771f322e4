"""MTP: one more layer behind the target predicts a further token, and is applied again to its own output.

DeepSeek-AI, "DeepSeek-V3 technical report", 2024, https://arxiv.org/abs/2412.19437; trained for it: Cai et al.,
"FastMTP: accelerating LLM inference with enhanced multi-token prediction", 2025, https://arxiv.org/abs/2509.18362.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.mtp.drafter import build
from outdraft.drafters.shared.features.options import FeatureOptions

METHOD = DrafterMethod(
    name="mtp",
    summary="a multi-token-prediction layer on the target's last feature, applied again to its own output",
    build=build,
    options=FeatureOptions,
    also_called=("deepseek_mtp", "qwen3_next_mtp", "qwen3_5_mtp"),
    paper=Paper(
        title="FastMTP: accelerating LLM inference with enhanced multi-token prediction",
        year=2025,
        link="https://arxiv.org/abs/2509.18362",
    ),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
