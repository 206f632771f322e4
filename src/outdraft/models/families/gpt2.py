"""GPT-2: learned positions, LayerNorm, biases everywhere, tanh GELU, tied head; weights stored as [in, out]."""

from collections.abc import Iterable

from outdraft.models.families.shared.fields import Fields
from outdraft.models.families.shared.naming import Architecture, Entry, Layout, linear, norm
from outdraft.models.networks.config import ModelConfig


def _read(fields: Fields) -> ModelConfig:
    heads, head_dim = fields.heads("n_head", "n_embd")
    return ModelConfig(
        architecture="gpt2",
        vocab_size=fields.size("vocab_size"),
        hidden_size=heads * head_dim,
        num_layers=fields.layers("n_layer"),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        intermediate_size=fields.size("n_inner", 4 * heads * head_dim),
        max_len=fields.size("n_positions", fields.size("n_ctx", 1024)),
        norm="layer",
        norm_eps=fields.get("layer_norm_epsilon", float, 1e-5),
        tie_embeddings=fields.get("tie_word_embeddings", bool, True),
        learned_positions=True,
        activation=fields.activation("activation_function", "gelu_new"),
        gated_mlp=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        bos_id=fields.maybe_int("bos_token_id"),
        eos_ids=fields.eos_ids(),
    )


def _write(config: ModelConfig) -> dict[str, object]:
    return {
        "vocab_size": config.vocab_size,
        "n_embd": config.hidden_size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_size,
        "n_positions": config.max_len,
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "activation_function": config.activation,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_ids[0] if config.eos_ids else None,
    }


def _table(config: ModelConfig) -> Iterable[Entry]:
    turned = Layout.TRANSPOSED
    yield Entry(ours="embedding", theirs=("transformer.wte.weight",))
    yield Entry(ours="positions", theirs=("transformer.wpe.weight",))
    yield from norm("final_norm", "transformer.ln_f", config)
    yield Entry(ours="lm_head.weight", theirs=("lm_head.weight",))
    for i in range(config.num_layers):
        us, them = f"layers.{i}", f"transformer.h.{i}"
        yield from norm(f"{us}.attn_norm", f"{them}.ln_1", config)
        yield from linear(f"{us}.qkv", [f"{them}.attn.c_attn"], True, layout=turned)
        yield from linear(f"{us}.out", [f"{them}.attn.c_proj"], True, layout=turned)
        yield from norm(f"{us}.mlp_norm", f"{them}.ln_2", config)
        yield from linear(f"{us}.up", [f"{them}.mlp.c_fc"], True, layout=turned)
        yield from linear(f"{us}.down", [f"{them}.mlp.c_proj"], True, layout=turned)


GPT2 = Architecture(
    model_type="gpt2",
    class_name="GPT2LMHeadModel",
    parse=_read,
    write=_write,
    other_table=_table,
    prefix="transformer.",
    ignored=("attn.bias", "attn.masked_bias"),
)
