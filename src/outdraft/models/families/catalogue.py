"""Every architecture that outdraft computes itself, by the `model_type` of its config.json."""

from outdraft.models.families.cohere import COHERE2
from outdraft.models.families.exaone import EXAONE4
from outdraft.models.families.gemma import GEMMA2, GEMMA3
from outdraft.models.families.glm import GLM4
from outdraft.models.families.gpt2 import GPT2
from outdraft.models.families.gpt_neox import GPT_NEOX
from outdraft.models.families.granite import GRANITE
from outdraft.models.families.llama import LLAMA, MINISTRAL3, MISTRAL
from outdraft.models.families.olmo import OLMO2, OLMO3
from outdraft.models.families.phi import PHI3
from outdraft.models.families.qwen import QWEN2, QWEN3, QWEN3_VL
from outdraft.models.families.smollm3 import SMOLLM3
from outdraft.models.families.starcoder2 import STARCODER2

ARCHITECTURES = {
    kind.model_type: kind
    for kind in (
        LLAMA,
        MISTRAL,
        MINISTRAL3,
        QWEN2,
        QWEN3,
        QWEN3_VL,
        GEMMA2,
        GEMMA3,
        PHI3,
        GRANITE,
        OLMO2,
        OLMO3,
        SMOLLM3,
        GLM4,
        STARCODER2,
        COHERE2,
        EXAONE4,
        GPT_NEOX,
        GPT2,
    )
}
