"""Rename tables: where each of our parameters stands in a Hugging Face file, and in which layout.

Our `layers.0.qkv.weight` is
    q_proj.weight, k_proj.weight, v_proj.weight    stacked (row blocks of given heights), as in Llama
    attn.c_attn.weight                             transposed (GPT-2 keeps [in, out])
    attention.query_key_value.weight               interleaved (GPT-NeoX: q, k, v head by head)
What stands in place of a rounded weight says `rounded_names.py`.

A family that differs from Llama only in names, in which maps are stored fused, or in how numbers are stored (norms as
w - 1, rotary pairs as neighbours) is one `LayerNames`; which of the parts exist says its `ModelConfig`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from outdraft.models.families.shared.fields import Fields, check_keys
from outdraft.models.networks.config import ModelConfig

EMBEDDING, HEAD = ("embedding", "embedding.blocks.0"), ("lm_head.weight", "lm_head.blocks.0")  # either may be tied
LINEAR_MAPS = ("qkv", "out", "up", "down")  # of a layer


class Layout(Enum):
    """How one or more stored tensors make one of ours."""

    STACKED = "stacked"
    TRANSPOSED = "transposed"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One parameter of ours and its source."""

    ours: str
    theirs: tuple[str, ...]
    layout: Layout = Layout.STACKED
    heights: tuple[int, ...] = ()  # rows of each stored tensor when there are several
    num_heads: int = 0  # interleaved: heads to untangle
    turned: int = 0  # stacked: so many channels of a head are stored as neighbouring pairs, not half of them apart
    pairs: tuple[int, ...] = ()  # of each stored tensor, how many heads are stored so; 0: none
    offset: float = 0.0  # what is added to the stored numbers: norms that are stored as w and mean 1 + w

    def join(self, stored: Sequence[Tensor]) -> Tensor:
        if self.layout is Layout.TRANSPOSED:
            return stored[0].t()
        if self.layout is Layout.INTERLEAVED:
            rows = stored[0]
            by_head = rows.view(self.num_heads, 3, -1, *rows.shape[1:])  # [H, 3, d, ...]
            return by_head.transpose(0, 1).flatten(0, 2)
        if self.turned:
            stored = [halves_apart(x, n, self.turned) if n else x for x, n in zip(stored, self.pairs, strict=True)]
        if self.offset:
            stored = [x.to(torch.promote_types(x.dtype, torch.float32)) + self.offset for x in stored]
        return stored[0] if len(stored) == 1 else torch.cat(list(stored))

    def fill(self, ours: Tensor, stored: Sequence[Tensor]) -> None:
        """Copy the stored tensors into ours, without a joined copy between them where they merely stand one by one."""
        if self.layout is Layout.STACKED and not self.turned and not self.offset:
            for part, one in zip(torch.split(ours, [len(one) for one in stored]), stored, strict=True):
                part.copy_(one)
        else:
            ours.copy_(self.join(stored))

    def split(self, ours: Tensor) -> dict[str, Tensor]:
        if self.layout is Layout.TRANSPOSED:
            return {self.theirs[0]: ours.t()}
        if self.layout is Layout.INTERLEAVED:
            by_kind = ours.view(3, self.num_heads, -1, *ours.shape[1:])  # [3, H, d, ...]
            return {self.theirs[0]: by_kind.transpose(0, 1).flatten(0, 2)}
        parts = [ours - self.offset if self.offset else ours]
        if len(self.theirs) > 1:
            parts = list(torch.split(ours, list(self.heights)))
        if self.turned:
            parts = [neighbours(x, n, self.turned) if n else x for x, n in zip(parts, self.pairs, strict=True)]
        return dict(zip(self.theirs, parts, strict=True))


def halves_apart(rows: Tensor, num_heads: int, turned: int) -> Tensor:
    """The first `turned` rows of each head as (0, 2, 4, ... 1, 3, 5, ...): [H * d, ...] -> [H * d, ...].

    Rotary pairs that are neighbours come to stand half of the turned channels apart.
    """
    heads = rows.view(num_heads, -1, *rows.shape[1:])  # [H, d, ...]
    return torch.cat((heads[:, 0:turned:2], heads[:, 1:turned:2], heads[:, turned:]), 1).flatten(0, 1)


def neighbours(rows: Tensor, num_heads: int, turned: int) -> Tensor:
    """`halves_apart` undone: [H * d, ...] -> [H * d, ...], rotary pairs next to each other again."""
    heads = rows.view(num_heads, -1, *rows.shape[1:])  # [H, d, ...]
    pairs = heads[:, :turned].view(num_heads, 2, turned // 2, *rows.shape[1:]).transpose(1, 2).flatten(1, 2)
    return torch.cat((pairs, heads[:, turned:]), 1).flatten(0, 1)


def stored_shapes(entry: Entry, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes that the stored tensors must have for a parameter of this shape."""
    if entry.layout is Layout.TRANSPOSED:
        return [shape[::-1]]
    if len(entry.theirs) == 1:
        return [shape]
    return [(height, *shape[1:]) for height in entry.heights]


def is_linear(name: str) -> bool:
    """Whether this module of ours is a linear map."""
    return name == "lm_head" or name.rpartition(".")[2] in LINEAR_MAPS


def linear(ours: str, theirs: Sequence[str], bias: bool, **options: object) -> Iterable[Entry]:
    """The weight of a linear map and, if it has one, its bias (which is never transposed)."""
    yield Entry(ours=f"{ours}.weight", theirs=tuple(f"{name}.weight" for name in theirs), **options)  # type: ignore[arg-type]
    if bias:
        if options.get("layout") is Layout.TRANSPOSED:
            options = {name: value for name, value in options.items() if name != "layout"}
        yield Entry(ours=f"{ours}.bias", theirs=tuple(f"{name}.bias" for name in theirs), **options)  # type: ignore[arg-type]


def norm(ours: str, theirs: str, config: ModelConfig, *, offset: float = 0.0) -> Iterable[Entry]:
    """A norm's weight, and the bias of a LayerNorm that has one."""
    yield Entry(ours=f"{ours}.weight", theirs=(f"{theirs}.weight",), offset=offset)
    if config.norm == "layer" and config.norm_bias:
        yield Entry(ours=f"{ours}.bias", theirs=(f"{theirs}.bias",))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What one architecture file says: its names, its configuration both ways, and its rename table."""

    model_type: str  # as in config.json
    class_name: str  # as in config.json's `architectures`
    parse: Callable[[Fields], ModelConfig]
    write: Callable[[ModelConfig], dict[str, object]]
    names: LayerNames = LLAMA_NAMES
    other_table: Callable[[ModelConfig], Iterable[Entry]] | None = None  # where tensors are not named as Llama's at all
    prefix: str = ""  # older files may lack this prefix on every name
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)  # endings of stored buffers that are not weights

    def read(self, raw: dict[str, object], *, strict: bool = False, beside: Collection[str] = ()) -> ModelConfig:
        """The configuration of a config.json; `strict`: an unknown key is an error, else a line in the log.

        beside: keys that another reader reads. Raises `ModelLoadError`; `fields.py` says for which keys.
        """
        fields = Fields(raw)
        config = self.parse(fields)
        check_keys(raw, fields.used, fields.name, strict=strict, beside=beside)
        return config

    def table(self, config: ModelConfig) -> Iterable[Entry]:
        """Which of our tensors each tensor of such a checkpoint is."""
        return table_of(config, self.names) if self.other_table is None else self.other_table(config)


def table_of(config: ModelConfig, names: LayerNames) -> Iterable[Entry]:
    """The table of a checkpoint whose layers have these names."""
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
