"""Every architecture that outdraft computes itself, by the `model_type` of its config.json."""

from outdraft.models.cohere import COHERE2
from outdraft.models.exaone import EXAONE4
from outdraft.models.gemma import GEMMA2, GEMMA3
from outdraft.models.glm import GLM4
from outdraft.models.gpt2 import GPT2
from outdraft.models.gpt_neox import GPT_NEOX
from outdraft.models.granite import GRANITE
from outdraft.models.llama import LLAMA, MINISTRAL3, MISTRAL
from outdraft.models.olmo import OLMO2, OLMO3
from outdraft.models.phi import PHI3
from outdraft.models.qwen import QWEN2, QWEN3, QWEN3_VL
from outdraft.models.smollm3 import SMOLLM3
from outdraft.models.starcoder2 import STARCODER2

ARCHITECTURES = {
    kind.model_type: kind
    for kind in (
        LLAMA, MISTRAL, MINISTRAL3, QWEN2, QWEN3, QWEN3_VL, GEMMA2, GEMMA3, PHI3, GRANITE, OLMO2, OLMO3, SMOLLM3, GLM4,
        STARCODER2, COHERE2, EXAONE4, GPT_NEOX, GPT2,
    )
}  # fmt: skip
