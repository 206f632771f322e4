"""Tiny random decoders of a few architectures, for tests that need a real model's behaviour and not its knowledge.

Weights are wide enough that the logits spread over several units: greedy text wanders instead of repeating one token,
and a wrong row, mask or position changes it.
"""

from dataclasses import replace
from typing import Any

import torch

from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.rope import RopeConfig

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
    special: dict[str, dict[str, object]] = {
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
    architecture: str = "llama", *, seed: int = 0, dtype: torch.dtype = torch.float64, exact: bool = True, **sizes: Any
) -> Decoder:
    """A prepared random decoder of this architecture; `sizes`: as `tiny_config` takes them."""
    return random_decoder(tiny_config(architecture, **sizes), seed=seed, dtype=dtype, exact=exact)


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
