"""Tiny random decoders of every architecture, for tests that need a real model's behaviour and not its knowledge.

Weights are wide enough that the logits spread over several units: greedy text wanders instead of repeating one token,
and a wrong row, mask or position changes it.
"""

from dataclasses import replace

import torch

from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.rope import RopeConfig

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
TINY_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2")


def tiny_config(
    architecture: str = "llama",
    *,
    vocab: int = 61,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    inner: int = 48,
    max_len: int = 512,
    tie: bool = False,
    eos_ids: tuple[int, ...] = (),
) -> ModelConfig:
    """What makes the architecture special is on: windows, biases, q/k norm, partial rotary, parallel residual."""
    head_dim = hidden // heads
    config = ModelConfig(
        architecture=architecture,
        vocab_size=vocab,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=inner,
        max_len=max_len,
        tie_embeddings=tie,
        rope=RopeConfig(dim=head_dim),
        eos_ids=eos_ids,
    )
    classic = {"norm": "layer", "gated_mlp": False, "num_kv_heads": heads, "qkv_bias": True, "out_bias": True}
    rope, near = RopeConfig(dim=head_dim), RopeConfig(dim=head_dim, theta=300.0)
    every_other: tuple[int | None, ...] = tuple(None if i % 2 else 11 for i in range(layers))
    sandwich = {"norm": "rms32", "post_norm": True, "activation": "gelu_pytorch_tanh", "embedding_scale": 3.0}
    behind = {"pre_norm": False, "post_norm": True, "qk_norm": True}
    somewhere = tuple(rope if window else None for window in every_other)
    special: dict[str, dict[str, object]] = {
        "ministral3": {"rope": replace(rope, query_growth=0.4, original_max_len=16)},
        "gemma2": {**sandwich, "windows": every_other, "score_scale": 0.4, "score_cap": 2.0, "logit_cap": 3.0},
        "gemma3_text": {
            **sandwich,
            "windows": every_other,
            "score_scale": 0.4,
            "qk_norm": True,
            "ropes": tuple(near if window else rope for window in every_other),
        },
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
        "olmo3": {
            "norm": "rms32",
            **behind,
            "qk_norm_whole": True,
            "windows": every_other,
            "ropes": tuple(near if window else rope for window in every_other),
        },
        "smollm3": {"ropes": tuple(None if i % 4 == 1 else rope for i in range(layers))},
        "glm4": {"post_norm": True, "qkv_bias": True, "rope": RopeConfig(dim=head_dim // 2)},
        "starcoder2": {
            **classic,
            "num_kv_heads": kv_heads,
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
        "llama": {},
        "mistral": {"windows": (11,) * layers},
        "qwen2": {"qkv_bias": True, "windows": (None,) + (13,) * (layers - 1)},
        "qwen3": {"qk_norm": True},
        "gpt_neox": {
            **classic,
            "mlp_bias": True,
            "activation": "gelu",
            "parallel_residual": True,
            "rope": RopeConfig(dim=head_dim // 2),
        },
        "gpt2": {
            **classic,
            "mlp_bias": True,
            "activation": "gelu_new",
            "rope": None,
            "learned_positions": True,
            "tie_embeddings": True,
        },
    }
    return replace(config, **special[architecture])  # type: ignore[arg-type]


def tiny_model(
    architecture: str = "llama",
    *,
    vocab: int = 61,
    layers: int = 2,
    hidden: int = 32,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    exact: bool = True,
    max_len: int = 512,
    eos_ids: tuple[int, ...] = (),
) -> Decoder:
    """A prepared random decoder of this architecture."""
    config = tiny_config(architecture, vocab=vocab, layers=layers, hidden=hidden, max_len=max_len, eos_ids=eos_ids)
    return random_decoder(config, seed=seed, dtype=dtype, exact=exact)


def random_decoder(
    config: ModelConfig, *, seed: int = 0, dtype: torch.dtype = torch.float64, exact: bool = True
) -> Decoder:
    """Random weights in this shape; every bias and norm weight is random too, so that a lost one shows."""
    decoder = Decoder(config, dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if name.endswith("norm.weight"):
                noise = 1 + 0.2 * noise
            elif parameter.dim() == 1:
                noise = 0.3 * noise
            elif name not in ("embedding", "positions"):
                noise = noise * 1.5 / parameter.shape[1] ** 0.5
            elif config.tie_embeddings and name == "embedding":
                noise = 0.3 * noise  # else a token votes for itself
            parameter.copy_(noise.to(dtype))
    decoder.eval().requires_grad_(False)
    if exact:
        decoder.set_exact(True)
    return decoder
