"""What a family calls the parts of its layers: the rename table of every decoder that is built like Llama's.

A family that differs only in names, in which maps are stored fused, or in how numbers are stored (norms as w - 1,
rotary pairs as neighbours) is one `LayerNames`; which of the parts exist says its `ModelConfig`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from outdraft.models.families.shared.naming import Entry, linear, norm
from outdraft.models.networks.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNames:
    """Under `model.layers.N.`; several names: stacked in this order, one name for several: stored fused."""

    attn_norm: str = "input_layernorm"
    attn_post_norm: str = "post_attention_layernorm"
    mlp_norm: str = "post_attention_layernorm"
    mlp_post_norm: str = "post_feedforward_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    out: str = "self_attn.o_proj"
    up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    norm_offset: float = 0.0  # a norm stored as w means w + this
    has_neighbours: bool = False  # rotary pairs of q and k are neighbouring channels


LLAMA_NAMES = LayerNames()


def table_of(config: ModelConfig, names: LayerNames) -> Iterable[Entry]:
    """Which of our tensors each tensor of such a checkpoint is."""
    yield Entry(ours="embedding", theirs=("model.embed_tokens.weight",))
    yield from norm("final_norm", "model.norm", config, offset=names.norm_offset)
    yield Entry(ours="lm_head.weight", theirs=("lm_head.weight",))
    for i in range(config.num_layers):
        yield from layer_entries(f"layers.{i}", f"model.layers.{i}", config, names=names)


def layer_entries(
    us: str, them: str, config: ModelConfig, *, names: LayerNames = LLAMA_NAMES, input_norm: bool = True
) -> Iterable[Entry]:
    """One layer; `input_norm`: whether it has one (the first layer of a drafter may not)."""
    for place, present in (
        ("attn_norm", config.pre_norm and input_norm),
        ("attn_post_norm", config.post_norm),
        ("mlp_norm", config.pre_norm and not config.shared_norm),
        ("mlp_post_norm", config.post_norm),
        ("q_norm", config.qk_norm),
        ("k_norm", config.qk_norm),
    ):
        if present:
            yield from norm(f"{us}.{place}", f"{them}.{getattr(names, place)}", config, offset=names.norm_offset)
    width, heads, kv_heads = config.head_dim, config.num_heads, config.num_kv_heads
    turns: dict[str, object] = {}
    if names.has_neighbours and config.rope is not None:
        turns = {"turned": config.rope.dim, "pairs": (heads, kv_heads, 0)}
    heights = (heads * width, kv_heads * width, kv_heads * width)
    inner = (config.intermediate_size, config.intermediate_size)
    qkv, up = ([f"{them}.{name}" for name in part] for part in (names.qkv, names.up))
    yield from linear(f"{us}.qkv", qkv, config.qkv_bias, heights=heights, **turns)
    yield from linear(f"{us}.out", [f"{them}.{names.out}"], config.out_bias)
    yield from linear(f"{us}.up", up, config.mlp_bias, heights=inner)
    yield from linear(f"{us}.down", [f"{them}.{names.down}"], config.mlp_bias)
