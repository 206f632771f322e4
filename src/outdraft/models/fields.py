"""Reading a `config.json`: typed fields, rotary options in both spellings, and the keys that must not be ignored.

A key that would change the arithmetic in a way that the shared block does not know is an error, never a shrug; keys
that only concern training or bookkeeping pass.
"""

from typing import TypeVar

from outdraft.core.errors import ModelLoadError
from outdraft.core.ranges import LARGEST
from outdraft.core.shown import shown
from outdraft.nn.activation import ACTIVATIONS
from outdraft.nn.rope import ROPE_KINDS, RopeConfig

T = TypeVar("T", int, float, bool, str)

MOST_LAYERS, MOST_CHANNELS = 4096, 1 << 20  # of any model; what a damaged file claims is not counted out
_OFF = (None, False, 0)
# key -> the values that leave the arithmetic as it is
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "alibi": _OFF,
    "attn_logit_softcapping": _OFF,
    "final_logit_softcapping": _OFF,
    "attention_multiplier": (None, 1),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
    "logits_scaling": (None, 1),
    "clip_qkv": _OFF,
    "num_experts": _OFF,
    "num_local_experts": _OFF,
    "n_routed_experts": _OFF,
    "is_encoder_decoder": _OFF,
    "add_cross_attention": _OFF,
    "scale_attn_weights": (None, True),
    "scale_attn_by_inverse_layer_idx": _OFF,
    "use_qk_norm": _OFF,
    "attention_chunk_size": _OFF,
}
_SUSPECT = ("multiplier", "softcap", "expert", "quantiz", "num_nextn")


class Fields:
    """A config.json under its architecture's name."""

    def __init__(self, raw: dict[str, object]) -> None:
        self.raw = raw
        self.name = str(raw.get("model_type"))
        for key, value in raw.items():
            allowed = _NEUTRAL.get(key)
            if allowed is None and any(word in key for word in _SUSPECT):
                allowed = _OFF
            if allowed is not None and value not in allowed:
                raise self.error(key, value, f"only {' or '.join(map(repr, allowed))}")

    def error(self, key: str, value: object, supported: str) -> ModelLoadError:
        """The one error for a value that we cannot honour."""
        return ModelLoadError(f"config.json of '{self.name}': {key}={shown(value)} is not supported ({supported})")

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A value of this type; None and absent mean the default, and without a default are an error."""
        value = self.raw.get(key)
        if value is None:
            if default is None:
                raise ModelLoadError(f"config.json of '{self.name}' lacks '{key}'")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, value, f"a value of type {kind.__name__} is needed")
        return value

    def size(self, key: str, default: int | None = None, *, most: int = LARGEST) -> int:
        """A number of things: at least 1, and not so many that they could not even be counted here."""
        value = self.get(key, int, default)
        if not 1 <= value <= most:
            raise self.error(key, value, f"at least 1, at most {most}")
        return value

    def layers(self, key: str) -> int:
        """How many layers: the files' tensors are compared with it, so it must not be more than can be listed."""
        return self.size(key, most=MOST_LAYERS)

    def heads(self, key: str, width_key: str) -> tuple[int, int]:
        """How many heads, and how wide they are where nothing else says so."""
        heads, width = self.size(key), self.size(width_key, most=MOST_CHANNELS)
        if width % heads and self.raw.get("head_dim") is None:
            raise self.error(key, heads, f"a divisor of {width_key}={width}, or a head_dim")
        return heads, width // heads

    def kv_heads(self, key: str, heads: int) -> int:
        """How many heads of keys and values."""
        kv_heads = self.size(key, heads)
        if heads % kv_heads:
            raise self.error(key, kv_heads, f"a divisor of the {heads} attention heads")
        return kv_heads

    def maybe_int(self, key: str) -> int | None:
        return None if self.raw.get(key) is None else self.get(key, int)

    def activation(self, key: str, default: str) -> str:
        """The feed-forward's non-linearity."""
        name = self.get(key, str, default)
        if name not in ACTIVATIONS:
            raise self.error(key, name, f"supported: {', '.join(sorted(ACTIVATIONS))}")
        return name

    def eos_ids(self) -> tuple[int, ...]:
        """Zero, one or several ids that end a text."""
        value = self.raw.get("eos_token_id")
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, int) for item in values):
            raise self.error("eos_token_id", value, "an id or a list of ids")
        return tuple(values)

    def windows(self, num_layers: int, size: int | None, first: int = 0) -> tuple[int | None, ...]:
        """Sliding windows: by `layer_types` where present, else on layers `first` and up."""
        kinds = self.raw.get("layer_types")
        if kinds is None:
            kinds = ["full_attention" if i < first or size is None else "sliding_attention" for i in range(num_layers)]
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise self.error("layer_types", kinds, f"a list of {num_layers} names")
        unknown = sorted(set(map(str, kinds)) - {"full_attention", "sliding_attention"})
        if unknown:
            raise self.error("layer_types", unknown[0], "supported: full_attention, sliding_attention")
        if size is None or "sliding_attention" not in kinds:
            return ()
        return tuple(size if kind == "sliding_attention" else None for kind in kinds)

    def rope(self, head_dim: int, max_len: int, *, theta_key: str = "rope_theta", share: float = 1.0) -> RopeConfig:
        """Rotary options: `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
        scaling = self.raw.get("rope_parameters") or self.raw.get("rope_scaling") or {}
        if not isinstance(scaling, dict):
            raise self.error("rope_parameters", scaling, "a table of rotary options")
        options = Fields({**scaling, "model_type": self.name})
        kind = options.get("rope_type", str, options.get("type", str, "default"))
        supported = (*ROPE_KINDS, "dynamic")
        if kind not in supported:
            raise self.error("rope_type", kind, f"supported: {', '.join(supported)}")
        theta = options.get("rope_theta", float, self.get(theta_key, float, 10000.0))
        share = options.get("partial_rotary_factor", float, self.get("partial_rotary_factor", float, share))
        dim = int(head_dim * share)
        if dim < 2 or dim % 2:
            raise self.error("partial_rotary_factor", share, f"an even number of the head's {head_dim} channels")
        known = {
            "rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings",
            "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale",
            "mscale_all_dim", "truncate",
        }  # fmt: skip
        unknown = sorted(set(scaling) - known)
        if unknown and kind != "default":
            raise self.error(f"rope_parameters.{unknown[0]}", scaling[unknown[0]], "an option that is not known")

        def maybe(key: str) -> float | None:
            return None if scaling.get(key) is None else options.get(key, float)

        return RopeConfig(
            dim=dim,
            theta=theta,
            kind="default" if kind == "dynamic" else kind,  # the same up to max_len
            factor=options.get("factor", float) if kind in ("linear", "llama3", "yarn") else 1.0,
            original_max_len=options.get("original_max_position_embeddings", int, max_len),
            low_freq_factor=options.get("low_freq_factor", float, 1.0),
            high_freq_factor=options.get("high_freq_factor", float, 4.0),
            beta_fast=options.get("beta_fast", float, 32.0),
            beta_slow=options.get("beta_slow", float, 1.0),
            attention_factor=maybe("attention_factor"),
            mscale=maybe("mscale"),
            mscale_all_dim=maybe("mscale_all_dim"),
            truncate=options.get("truncate", bool, True),
        )


def write_rope(rope: RopeConfig, head_dim: int) -> dict[str, object]:
    """`rope_theta` and `rope_scaling` as every version of transformers reads them."""
    fields: dict[str, object] = {"rope_theta": rope.theta}
    if rope.dim != head_dim:
        fields["partial_rotary_factor"] = rope.dim / head_dim
    scaling: dict[str, object] = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        scaling |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
        optional = {"attention_factor": rope.attention_factor, "mscale": rope.mscale}
        optional["mscale_all_dim"] = rope.mscale_all_dim
        scaling |= {name: value for name, value in optional.items() if value is not None}
    if rope.kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = rope.original_max_len
    fields["rope_scaling"] = None if rope.kind == "default" else scaling
    return fields
