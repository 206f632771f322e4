"""Tiny random decoders of the families that only our own tests need, beside those of `outdraft.testing.tiny`.

What makes a family special is on, as it is there: windows, norms behind, caps, scales, two ways to turn heads.
"""

from dataclasses import replace
from typing import Any

import torch

from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.rope import RopeConfig
from outdraft.testing import tiny
from outdraft.testing.tiny import random_decoder

TINY_FAMILIES = (
    "ministral3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "granite",
    "olmo2",
    "olmo3",
    "smollm3",
    "glm4",
    "starcoder2",
    "cohere2",
    "exaone4",
)


def tiny_config(architecture: str = "llama", **sizes: Any) -> ModelConfig:
    """Of a family, or of what the test kit has; `sizes`: as the kit takes them."""
    if architecture not in TINY_FAMILIES:
        return tiny.tiny_config(architecture, **sizes)
    config = tiny.tiny_config(**sizes)
    head_dim, layers = config.head_dim, config.num_layers
    rope, near = RopeConfig(dim=head_dim), RopeConfig(dim=head_dim, theta=300.0)
    every_other: tuple[int | None, ...] = tuple(None if i % 2 else 11 for i in range(layers))
    somewhere = tuple(rope if window else None for window in every_other)
    near_and_far = tuple(near if window else rope for window in every_other)
    sandwich = {"norm": "rms32", "post_norm": True, "activation": "gelu_pytorch_tanh", "embedding_scale": 3.0}
    behind = {"pre_norm": False, "post_norm": True, "qk_norm": True}
    special: dict[str, dict[str, object]] = {
        "ministral3": {"rope": replace(rope, query_growth=0.4, original_max_len=16)},
        "gemma2": {**sandwich, "windows": every_other, "score_scale": 0.4, "score_cap": 2.0, "logit_cap": 3.0},
        "gemma3_text": {**sandwich, "windows": every_other, "score_scale": 0.4, "qk_norm": True, "ropes": near_and_far},
        "phi3": {
            "rope": RopeConfig(
                dim=head_dim // 2,
                kind="longrope",
                original_max_len=256,
                factor=2.0,
                short_factors=tuple(1 + i / 2 for i in range(head_dim // 4)),
                long_factors=tuple(3.0 + 2 * i for i in range(head_dim // 4)),
            )
        },
        "granite": {"embedding_scale": 3.0, "score_scale": 0.3, "residual_scale": 0.6, "logit_scale": 0.7},
        "olmo2": {"norm": "rms32", **behind, "qk_norm_whole": True},
        "olmo3": {"norm": "rms32", **behind, "qk_norm_whole": True, "windows": every_other, "ropes": near_and_far},
        "smollm3": {"ropes": tuple(None if i % 4 == 1 else rope for i in range(layers))},
        "glm4": {"post_norm": True, "qkv_bias": True, "rope": RopeConfig(dim=head_dim // 2)},
        "starcoder2": {
            "norm": "layer",
            "gated_mlp": False,
            "qkv_bias": True,
            "out_bias": True,
            "mlp_bias": True,
            "activation": "gelu_pytorch_tanh",
            "windows": (11,) * layers,
        },
        "cohere2": {
            "norm": "layer",
            "norm_bias": False,
            "parallel_residual": True,
            "shared_norm": True,
            "logit_scale": 0.7,
            "windows": every_other,
            "ropes": somewhere,
        },
        "exaone4": {**behind, "windows": every_other, "ropes": somewhere},
    }
    return replace(config, architecture=architecture, **special[architecture])  # type: ignore[arg-type]


def tiny_model(
    architecture: str = "llama", *, seed: int = 0, dtype: torch.dtype = torch.float64, exact: bool = True, **sizes: Any
) -> Decoder:
    """A prepared random decoder of a family, or of what the test kit has."""
    return random_decoder(tiny_config(architecture, **sizes), seed=seed, dtype=dtype, exact=exact)
