"""GPT-NeoX and Pythia: LayerNorm, parallel residual, partial rotary positions, biases everywhere, a plain GELU MLP.

Queries, keys and values are stored in one tensor, head by head.
"""

from collections.abc import Iterable

from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Architecture, Entry, Layout, linear, norm
from outdraft.models.families.shared.rope_fields import read_rope, write_rope
from outdraft.models.networks.config import ModelConfig


def _read(fields: Fields) -> ModelConfig:
    heads, head_dim = fields.heads("num_attention_heads", "hidden_size")
    max_len = fields.size("max_position_embeddings", 2048)
    bias = fields.get("attention_bias", bool, True)
    theta = fields.get("rotary_emb_base", float, fields.get("rope_theta", float, 10000.0))
    fields.only(rope_theta=theta)  # newer files have both names
    return ModelConfig(
        architecture="gpt_neox",
        vocab_size=fields.size("vocab_size"),
        hidden_size=heads * head_dim,
        num_layers=fields.layers("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        intermediate_size=fields.size("intermediate_size"),
        max_len=max_len,
        norm="layer",
        norm_eps=fields.get("layer_norm_eps", float, 1e-5),
        tie_embeddings=fields.get("tie_word_embeddings", bool, False),
        rope=read_rope(fields, head_dim, max_len, theta=theta, share_key="rotary_pct", share=0.25),
        activation=fields.activation("hidden_act", "gelu"),
        gated_mlp=False,
        parallel_residual=fields.get("use_parallel_residual", bool, True),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=True,
        bos_id=fields.maybe_int("bos_token_id"),
        eos_ids=fields.eos_ids(),
    )


def _write(config: ModelConfig) -> dict[str, object]:
    assert config.rope is not None
    rope = write_rope(config.rope, config.head_dim)
    share = rope.pop("partial_rotary_factor", 1.0)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_len,
        "layer_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": config.activation,
        "use_parallel_residual": config.parallel_residual,
        "attention_bias": config.qkv_bias,
        "rotary_pct": share,
        "rotary_emb_base": rope.pop("rope_theta"),
        **rope,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_ids[0] if config.eos_ids else None,
    }


def _table(config: ModelConfig) -> Iterable[Entry]:
    yield Entry(ours="embedding", theirs=("gpt_neox.embed_in.weight",))
    yield from norm("final_norm", "gpt_neox.final_layer_norm", config)
    yield Entry(ours="lm_head.weight", theirs=("embed_out.weight",))
    for i in range(config.num_layers):
        us, them = f"layers.{i}", f"gpt_neox.layers.{i}"
        qkv = [f"{them}.attention.query_key_value"]
        yield from norm(f"{us}.attn_norm", f"{them}.input_layernorm", config)
        yield from linear(f"{us}.qkv", qkv, config.qkv_bias, layout=Layout.INTERLEAVED, num_heads=config.num_heads)
        yield from linear(f"{us}.out", [f"{them}.attention.dense"], config.out_bias)
        yield from norm(f"{us}.mlp_norm", f"{them}.post_attention_layernorm", config)
        yield from linear(f"{us}.up", [f"{them}.mlp.dense_h_to_4h"], config.mlp_bias)
        yield from linear(f"{us}.down", [f"{them}.mlp.dense_4h_to_h"], config.mlp_bias)


GPT_NEOX = Architecture(
    model_type="gpt_neox",
    class_name="GPTNeoXForCausalLM",
    parse=_read,
    write=_write,
    other_table=_table,
    ignored=("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias"),
)
