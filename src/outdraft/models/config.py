"""A decoder's shape and options, free of any library's spelling.

Architectures map their own `config.json` to this and back (one file each); the shared block reads nothing else.
"""

from dataclasses import dataclass

from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.rope import RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Everything that the arithmetic depends on, and the ids that end a text."""

    architecture: str = "llama"
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_len: int
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    rope: RopeConfig | None = None  # None: no rotary positions
    learned_positions: bool = False
    norm: str = "rms"  # or "layer"
    activation: str = "silu"
    gated_mlp: bool = True
    parallel_residual: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = ()  # per layer; empty: every layer sees the whole past
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    quant: QuantConfig | None = None  # which linear maps are kept as small integers
    variant: str = ""  # how the weights were rounded, by name, for results; "": they are the published ones

    def window(self, layer: int) -> int | None:
        """How many keys a row of this layer sees, itself included; None: all."""
        return self.windows[layer] if self.windows else None


def llama_config(
    *,
    vocab_size: int,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    intermediate_size: int,
    max_len: int = 2048,
    rope_theta: float = 10000.0,
    norm_eps: float = 1e-5,
    tie_embeddings: bool = True,
    bos_id: int | None = None,
    eos_ids: tuple[int, ...] = (),
) -> ModelConfig:
    """A Llama of this shape: for models trained from scratch."""
    head_dim = head_dim or hidden_size // num_heads
    return ModelConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads or num_heads,
        head_dim=head_dim,
        intermediate_size=intermediate_size,
        max_len=max_len,
        norm_eps=norm_eps,
        tie_embeddings=tie_embeddings,
        rope=RopeConfig(dim=head_dim, theta=rope_theta),
        bos_id=bos_id,
        eos_ids=eos_ids,
    )
