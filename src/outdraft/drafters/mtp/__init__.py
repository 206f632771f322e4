"""MTP: one more layer behind the target predicts a further token, and is applied again to its own output.

DeepSeek-AI, "DeepSeek-V3 technical report", 2024, https://arxiv.org/abs/2412.19437; trained for it: Cai et al.,
"FastMTP: accelerating LLM inference with enhanced multi-token prediction", 2025, https://arxiv.org/abs/2509.18362.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.mtp.net import load_mtp
from outdraft.drafters.shared.features.drafter import feature_method

_VLLM = tuple(
    """
    bailing_hybrid_mtp bailing_hybrid_v3_mtp deepseek_mtp dots3_note_mtp ernie_mtp exaone4_5_mtp exaone_moe_mtp
    gemma4_mtp glm4_moe_lite_mtp glm4_moe_mtp glm5_next_mtp glm_ocr_mtp hy_v3_mtp hy_v4_mtp inkling_mtp
    kimi_k3_mtp longcat_flash_mtp mimo_mtp mimo_v2_mtp minimax_m3_mtp nemotron_h_mtp pangu_ultra_moe_mtp
    qwen3_5_mtp qwen3_next_mtp qwen4_exp_mtp step3p5_mtp
    """.split()
)  # one name for each family of models; what can be read is reported when the file is

METHOD = feature_method(
    "mtp",
    load_mtp,
    summary="a multi-token-prediction layer on the target's last feature, applied again to its own output",
    also_called=_VLLM,
    paper=arxiv("2509.18362", "FastMTP: accelerating LLM inference with enhanced multi-token prediction"),
)
