"""Granite 3: Llama with four multipliers: of embeddings, scores, what each half adds, and (as a divisor) logits.

IBM, "Granite 3.0 Language Models", 2024, https://github.com/ibm-granite/granite-3.0-language-models.
"""

from outdraft.models.families.llama import read_common, write_common
from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Architecture
from outdraft.models.networks.config import ModelConfig


def _read(fields: Fields) -> ModelConfig:
    divisor = fields.get("logits_scaling", float, 1.0)
    if divisor == 0:
        raise fields.error("logits_scaling", divisor, "a divisor of the logits")
    return read_common(
        fields,
        mlp_bias=fields.get("mlp_bias", bool, False),
        embedding_scale=fields.get("embedding_multiplier", float, 1.0),
        score_scale=fields.get("attention_multiplier", float, 1.0),
        residual_scale=fields.get("residual_multiplier", float, 1.0),
        logit_scale=1 / divisor,
        **fields.attention_biases(),
    )


def _write(config: ModelConfig) -> dict[str, object]:
    return {
        **write_common(config),
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "embedding_multiplier": config.embedding_scale,
        "attention_multiplier": config.score_scale,
        "residual_multiplier": config.residual_scale,
        "logits_scaling": 1 / config.logit_scale,
    }


GRANITE = Architecture(model_type="granite", class_name="GraniteForCausalLM", parse=_read, write=_write)
