"""Rotary options in a config.json: every spelling that published models use, both ways.

rope_theta, rope_scaling {...}                       transformers 4
rope_parameters {rope_type, rope_theta, ...}         transformers 5
rope_parameters {full_attention {...}, ...}          the same, for each kind of layer (Gemma 3, OLMo 3)

A file that has a table under each name must say the same in both: transformers takes `rope_scaling`, and the base that
stood in `rope_parameters` is lost.
"""

from collections.abc import Sequence

from outdraft.models.families.shared.fields import FULL, SLIDING, Fields
from outdraft.nn.rope import ROPE_KINDS, RopeConfig
from outdraft.options.shown import shown

_KNOWN = set(
    """
    rope_type type rope_theta partial_rotary_factor factor original_max_position_embeddings low_freq_factor
    high_freq_factor beta_fast beta_slow attention_factor mscale mscale_all_dim truncate mrope_section
    mrope_interleaved short_factor long_factor llama_4_scaling_beta max_position_embeddings finetuned
    """.split()
)
_LONGROPE = ("longrope", "su")  # one rule, two names


def read_rope(
    fields: Fields,
    head_dim: int,
    max_len: int,
    *,
    theta_key: str = "rope_theta",
    theta: float = 10000.0,
    share: float = 1.0,
    share_key: str = "partial_rotary_factor",
    kind_of_layer: str = FULL,
    is_scaled: bool = True,
) -> RopeConfig:
    """How positions turn heads of `head_dim` channels, on layers of one kind.

    theta, share: where the file names none. is_scaled: whether an older file's `rope_scaling` is for these layers.
    Raises `ModelLoadError` for options that are not known.
    """
    theta = fields.positive(theta_key, theta)
    share = fields.get(share_key, float, fields.get("partial_rotary_factor", float, share))
    scaling = fields.look("rope_parameters")
    older = fields.look("rope_scaling") if is_scaled else None
    if isinstance(scaling, dict) and (FULL in scaling or SLIDING in scaling):
        scaling = scaling.get(kind_of_layer)
    if scaling and older and _options(scaling) != _options(older):
        raise fields.error(
            "rope_scaling",
            older,
            f"rope_parameters={shown(scaling)} beside it says something else: keep one of the "
            "two, with rope_theta in it",
        )
    scaling = scaling or older or {}
    if not isinstance(scaling, dict):
        raise fields.error("rope_parameters", scaling, "a table of rotary options")
    options = Fields({**scaling, "model_type": fields.name})
    kind = options.get("rope_type", str, options.get("type", str, "default"))
    kind = "longrope" if kind in _LONGROPE else "default" if kind == "mrope" else kind  # of text alone, mrope is plain
    if kind not in (*ROPE_KINDS, "dynamic"):
        raise fields.error("rope_type", kind, f"supported: {', '.join((*ROPE_KINDS, 'dynamic'))}")
    unknown = sorted(set(scaling) - _KNOWN)
    if unknown:
        raise fields.error(f"rope_parameters.{unknown[0]}", scaling[unknown[0]], "an option that is not known")
    share = options.get("partial_rotary_factor", float, share)
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        raise fields.error("partial_rotary_factor", share, f"an even number of the head's {head_dim} channels")

    def maybe(key: str) -> float | None:
        return options.get(key, float) if options.has(key) else None

    def factors(key: str) -> tuple[float, ...]:
        given = options.look(key) if kind == "longrope" else []
        if kind == "longrope" and not (
            isinstance(given, list) and len(given) == dim // 2 and all(isinstance(x, int | float) for x in given)
        ):
            raise fields.error(f"rope_parameters.{key}", given, f"a list of {dim // 2} numbers")
        assert isinstance(given, list)
        return tuple(map(float, given))

    beside = fields if fields.has("original_max_position_embeddings") else options  # Phi-3's is not in the table
    original = beside.size("original_max_position_embeddings", max_len)
    factor = 1.0
    if kind in ("linear", "llama3", "yarn"):
        factor = options.positive("factor")
    elif kind == "longrope":
        factor = options.positive("factor", max_len / original)
    return RopeConfig(
        dim=dim,
        theta=options.positive("rope_theta", theta),
        kind="default" if kind == "dynamic" else kind,  # the same up to max_len
        factor=factor,
        original_max_len=original,
        low_freq_factor=options.get("low_freq_factor", float, 1.0),
        high_freq_factor=options.get("high_freq_factor", float, 4.0),
        beta_fast=options.positive("beta_fast", 32.0),
        beta_slow=options.positive("beta_slow", 1.0),
        attention_factor=maybe("attention_factor"),
        mscale=maybe("mscale"),
        mscale_all_dim=maybe("mscale_all_dim"),
        truncate=options.get("truncate", bool, True),
        short_factors=factors("short_factor"),
        long_factors=factors("long_factor"),
        query_growth=options.get("llama_4_scaling_beta", float, 0.0),
    )


def _options(table: object) -> object:
    """A table's options in one spelling, without the base, which older files keep beside the table."""
    if not isinstance(table, dict):
        return table
    kind = table.get("rope_type", table.get("type", "default"))
    told = {key: value for key, value in table.items() if value is not None}
    return {**told, "rope_type": kind, "type": None, "rope_theta": None}


def write_rope(rope: RopeConfig, head_dim: int) -> dict[str, object]:
    """`rope_theta` and `rope_scaling` as every version of transformers reads them."""
    fields: dict[str, object] = {"rope_theta": rope.theta}
    if rope.dim != head_dim:
        fields["partial_rotary_factor"] = rope.dim / head_dim
    scaling = _scaling(rope)
    fields["rope_scaling"] = None if rope.kind == "default" and not rope.query_growth else scaling
    if rope.kind == "longrope":
        fields["original_max_position_embeddings"] = rope.original_max_len
    return fields


def write_ropes(ropes: Sequence[RopeConfig | None], kinds: Sequence[str]) -> dict[str, object]:
    """`rope_parameters` for each kind of layer: layer i is of `kinds[i]` and turned as `ropes[i]` says."""
    tables: dict[str, object] = {}
    for rope, kind in zip(ropes, kinds, strict=True):
        assert rope is not None
        tables[kind] = {"rope_theta": rope.theta, **_scaling(rope)}
    return {"rope_parameters": tables}


def _scaling(rope: RopeConfig) -> dict[str, object]:
    if rope.kind == "default":
        scaling: dict[str, object] = {"rope_type": "default"}
    else:
        scaling = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        scaling |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
    if rope.kind == "longrope":
        scaling |= {"short_factor": list(rope.short_factors), "long_factor": list(rope.long_factors)}
    optional = {"attention_factor": rope.attention_factor, "mscale": rope.mscale}
    optional |= {"mscale_all_dim": rope.mscale_all_dim, "llama_4_scaling_beta": rope.query_growth or None}
    scaling |= {name: value for name, value in optional.items() if value is not None}
    if rope.kind in ("llama3", "yarn", "longrope") or rope.query_growth:
        scaling["original_max_position_embeddings"] = rope.original_max_len
    return scaling
