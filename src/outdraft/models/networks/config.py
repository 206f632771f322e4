"""A decoder's shape and options, free of any library's spelling.

Architectures map their own `config.json` to this and back (one file each); the shared block reads nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outdraft.models.networks.parts import FeedForwardKind, MixerKind
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.rope import RopeConfig
from outdraft.options.errors import ConfigError


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
    norm: str = "rms"  # "layer"; "rms32": its weight is kept and applied in float32
    norm_bias: bool = True  # of a "layer" norm
    pre_norm: bool = True  # attention and feed-forward read a normed state
    post_norm: bool = False  # what they add is normed
    activation: str = "silu"
    gated_mlp: bool = True
    parallel_residual: bool = False
    shared_norm: bool = False  # parallel: one norm for both
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    qk_norm_whole: bool = False  # over all heads at once, instead of head by head
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what attention and feed-forward add
    logit_scale: float = 1.0
    score_scale: float | None = None  # of attention's scores; None: head_dim ** -0.5
    score_cap: float | None = None  # scores become cap * tanh(score / cap)
    logit_cap: float | None = None
    windows: tuple[int | None, ...] = ()  # per layer; empty: every layer sees the whole past
    ropes: tuple[RopeConfig | None, ...] = ()  # per layer; empty: `rope` everywhere
    mixers: tuple[MixerKind | None, ...] = ()  # per layer; None, or empty: attention
    feed_forwards: tuple[FeedForwardKind | None, ...] = ()  # per layer; None, or empty: the MLP
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    quant: QuantConfig | None = None  # which linear maps are kept as small integers
    variant: str = ""  # how the weights were rounded, by name, for results; "": they are the published ones

    def window(self, layer: int) -> int | None:
        """How many keys a row of this layer sees, itself included; None: all."""
        return self.windows[layer] if self.windows else None

    def rope_at(self, layer: int) -> RopeConfig | None:
        """How positions turn the heads of this layer; None: not at all."""
        return self.ropes[layer] if self.ropes else self.rope

    def rope_kinds(self) -> tuple[RopeConfig, ...]:
        """The different ways to turn heads that there are among the layers."""
        told = self.ropes or (self.rope,)
        return tuple(dict.fromkeys(rope for rope in told if rope is not None))

    def rope_kind(self, layer: int) -> int:
        """Which of `rope_kinds` is this layer's; -1: none."""
        rope = self.rope_at(layer)
        return -1 if rope is None else self.rope_kinds().index(rope)

    def mixer(self, layer: int) -> MixerKind | None:
        """What this layer has in place of attention."""
        return self.mixers[layer] if self.mixers else None

    def feed_forward(self, layer: int) -> FeedForwardKind | None:
        """What this layer has in place of the MLP."""
        return self.feed_forwards[layer] if self.feed_forwards else None

    def states(self) -> dict[int, tuple[int, ...]]:
        """The layers that remember a text by a state, and its shape."""
        kinds = ((layer, self.mixer(layer)) for layer in range(self.num_layers))
        return {layer: kind.state for layer, kind in kinds if kind is not None and kind.state is not None}

    def first_position(self, longest: int) -> int:
        """The position of token 0 of a text that may become `longest` tokens long (`nn/rope.py`: longrope)."""
        return self.rope.first_position(longest) if self.rope is not None and self.rope.kind == "longrope" else 0

    @property
    def unshifted_len(self) -> int:
        """The longest text whose token 0 has position 0, however long texts may become."""
        return self.first_position(self.max_len) or self.max_len

    def turned_where(self, turned: Sequence[object]) -> "ModelConfig":
        """The same with positions only on the layers for which `turned` says something true."""
        return replace(self, ropes=() if all(turned) else tuple(self.rope if turn else None for turn in turned))

    def of_layers(self, layers: Sequence[int]) -> "ModelConfig":
        """The same decoder made of these of its layers, in this order; a layer may come more than once."""
        return replace(
            self,
            num_layers=len(layers),
            windows=tuple(self.windows[layer] for layer in layers) if self.windows else (),
            ropes=tuple(self.ropes[layer] for layer in layers) if self.ropes else (),
            mixers=tuple(self.mixers[layer] for layer in layers) if self.mixers else (),
            feed_forwards=tuple(self.feed_forwards[layer] for layer in layers) if self.feed_forwards else (),
        )


def check_heads(config: ModelConfig) -> ModelConfig:
    """The same. Raises `ConfigError` for heads that cannot share their keys, or cannot be turned in pairs."""
    if config.num_heads % config.num_kv_heads:
        raise ConfigError(
            f"num_heads={config.num_heads}, num_kv_heads={config.num_kv_heads}: heads share keys and values in equal "
            "groups, so the first must be a multiple of the second"
        )
    for rope in config.rope_kinds():
        if rope.dim % 2:
            raise ConfigError(
                f"head_dim={config.head_dim}: positions turn {rope.dim} numbers of a head, in pairs: it must be even"
            )
    return config


def refuse_other_parts(config: ModelConfig, what: str) -> None:
    """Raise `ConfigError` where layers have other parts than attention and an MLP."""
    if config.mixers or config.feed_forwards:
        raise ConfigError(f"{what} knows layers of attention and an MLP, and this model has others")


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
