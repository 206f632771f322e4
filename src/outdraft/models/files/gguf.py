"""A GGUF file seen as a Hugging Face model: its metadata as a config.json, its tensors under Hugging Face's names.

    blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight        output_norm.weight -> model.norm.weight

llama.cpp turns neighbouring channels where all other engines turn channels half a head apart, so its converter reorders
the rows of q and k of Llama models, and we put them back:  [h, d/2, 2] -> [h, 2, d/2].  Qwen's rows are as they were.

Linear maps and embeddings whose blocks of integers we know (`nn/quant/blocks.py`) stay the bytes that they are.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from outdraft.codecs.gguf_ends import end_ids
from outdraft.models.families.shared.naming import Entry, is_linear
from outdraft.models.files.gguf_families import FACTORS, FAMILIES, LONGROPE, GgufFamily
from outdraft.models.files.gguf_keys import require_model
from outdraft.models.files.gguf_meta import GgufMeta, shortest
from outdraft.nn.quant.block_linear import our_bits
from outdraft.nn.quant.blocks import BLOCKS
from outdraft.nn.quant.config import Parts, QuantConfig
from outdraft.nn.rope import RopeConfig, frequencies
from outdraft.options.errors import ModelLoadError
from outdraft.weights.gguf import GgufFile
from outdraft.weights.source import TensorSource

_DIVISORS = "rope_freqs.weight"  # Llama 3's slowed rotary pairs, as numbers instead of a rule
_YARN = ("beta_fast", "beta_slow")
_FACTORS = (".scale", ".input_scale")  # of a map's weights, and of its activations, which are not rounded here
_log = logging.getLogger(__name__)


class GgufModel(TensorSource):
    """The tensors of a GGUF file by Hugging Face's names; `variant` names how they were rounded.

    blocks: they stay what they are. Else only linear maps on our own grid do, and all others are made floats, which can
    be trained and cut.
    """

    def __init__(self, path: Path, *, blocks: bool = False, families: Mapping[str, GgufFamily] = FAMILIES) -> None:
        self.origin, self._blocks = path, blocks
        self._file = GgufFile(path)
        require_model(self._file)
        arch = self._file.get("general.architecture")
        if arch not in families:
            raise ModelLoadError(
                f"{path}: general.architecture={arch!r} is not read from GGUF files "
                f"(supported: {', '.join(families)}): take the model's safetensors"
            )
        self._family = families[arch]
        self._meta = GgufMeta(self._file, arch, path)
        no_weights = (_DIVISORS, *(FACTORS.values() if self._family.has_factors else ()))
        names = [name for name in self._file.names() if name not in no_weights]
        of = {name: f"{name.rpartition('.')[0]}.weight" for name in names if name.endswith(_FACTORS)}
        of = {name: weight for name, weight in of.items() if weight in names and weight != "token_embd.weight"}
        self._factors = {of[name]: float(self._file.tensor(name)) for name in of if not name.endswith(_FACTORS[1])}
        self._names = {_rename(name, self._family): name for name in names if name not in of}
        self._has_head = "lm_head.weight" in self._names  # else it is the embedding
        rounding = self._file.rounding()
        self.variant = f"gguf-{rounding}" if rounding else ""

    def shares(self) -> dict[str, float]:
        """As `GgufFile.shares`."""
        return self._file.shares()

    def keep_integers(self, table: Iterable[Entry]) -> QuantConfig | None:
        """Offer the blocks of linear maps and of the embedding as they are stored; None if there are none.

        A map of ours that is made of several of theirs needs all of them in blocks, of whatever types.
        """
        blocks: dict[str, Parts] = {}
        factors: dict[str, tuple[float, ...]] = {}
        whole: list[str] = []  # tensors that do not stay integers
        for entry in table:
            name = entry.ours.removesuffix(".weight")
            if name != "embedding" and (name == entry.ours or not is_linear(name)):
                continue
            theirs = [self._names[one] for one in entry.theirs if one in self]
            parts = tuple((self._file.kind(one), self._file.shape(one)[0]) for one in theirs)
            fits = len(parts) == len(entry.theirs) and (len(parts) == 1 or entry.heights == tuple(n for _, n in parts))
            is_kept = self._blocks or (name != "embedding" and our_bits(parts) > 0)
            if not fits or not is_kept or not all(kind in BLOCKS for kind, _ in parts):
                whole += theirs
                continue
            blocks[name] = parts
            if any(one in self._factors for one in theirs):
                factors[name] = tuple(self._factors.get(one, 1.0) for one in theirs)
            for one in entry.theirs:
                self._names[f"{one.removesuffix('weight')}blocks"] = self._names.pop(one)
        if self._blocks:
            self._tell(whole)
        if "embedding" in blocks and not self._has_head:
            blocks["lm_head"] = blocks["embedding"]
        if not blocks:
            return None
        return QuantConfig(keep=("*",), blocks=tuple(blocks.items()), factors=tuple(factors.items()))

    def _tell(self, whole: Iterable[str]) -> None:
        """One line on what it costs that some of the file's integers become floats."""
        rounded = [name for name in whole if self._file.is_rounded(name)]
        if rounded:
            kinds = ", ".join(sorted({self._file.kind(name) for name in rounded}))
            stored = sum(self._file.num_bytes(name) for name in rounded)
            made = sum(2 * prod(self._file.shape(name)) for name in rounded)
            _log.warning(
                "%s: %d weights (%s) are read as 16-bit floats, which take %.1f MB of memory instead of %.1f; a "
                "Q4_K_M or Q8_0 file of the same model keeps its integers, and so does one that `outdraft quantize` "
                "has made",
                self.origin.name,
                len(rounded),
                kinds,
                made / 1e6,
                stored / 1e6,
            )

    def __getitem__(self, name: str) -> Tensor:
        theirs = self._names[name]
        if not _is_blocks(name):
            whole = self._file.tensor(theirs)
            return self._restored(name, whole * self._factors[theirs] if theirs in self._factors else whole)
        blocks = self._file.blocks(theirs)
        if not BLOCKS[self._file.kind(theirs)].are_finite(blocks):
            raise ModelLoadError(
                f"tensor '{theirs}' in {self.origin} has a scale that is no finite number: download it again"
            )
        return self._restored(name, blocks)

    def _restored(self, name: str, tensor: Tensor) -> Tensor:
        """The rows in Hugging Face's order, and norms as it stores them."""
        if name.endswith("norm.weight") and self._family.norm_offset:
            return tensor.float() - self._family.norm_offset
        if self._family.is_permuted and ".self_attn." in name:
            for part, key in (("q_proj", "head_count"), ("k_proj", "head_count_kv")):
                if f".{part}." in name:
                    heads = self._meta.count(f"attention.{key}", self._meta.count("attention.head_count"))
                    return restore_rows(tensor, heads)
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        theirs = self._names[name]
        return tuple(self._file.blocks(theirs).shape) if _is_blocks(name) else self._file.shape(theirs)

    def dtype_name(self, name: str) -> str:
        """F32, F16 or BF16; blocks of small integers are U8, or BF16 where they are made whole."""
        kind = self._file.kind(self._names[name])
        return "U8" if _is_blocks(name) else kind if kind in ("F32", "F16") else "BF16"

    def read_config(self) -> dict[str, object]:
        """The metadata in the words of a config.json."""
        meta = self._meta
        for key in ("expert_count", "nextn_predict_layers"):
            if meta.value(key):
                raise meta.error(key)
        vocab_size = self.vocab_size()
        heads, width = meta.count("attention.head_count"), meta.count("embedding_length")
        head_dim = meta.count("attention.key_length", width // max(1, heads))
        turned = meta.count("rope.dimension_count", head_dim)
        meta.require_same(head_dim, "attention.value_length", "attention.key_length_swa", "attention.value_length_swa")
        meta.require_same(turned, "rope.dimension_count_swa")
        max_len = meta.count("context_length")
        told: dict[str, object] = {
            "model_type": self._family.model_type,
            "vocab_size": vocab_size,
            "hidden_size": width,
            "num_hidden_layers": meta.count("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": meta.count("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "intermediate_size": meta.count("feed_forward_length"),
            "max_position_embeddings": max_len,
            "rms_norm_eps": meta.number("attention.layer_norm_rms_epsilon", 1e-5),
            "tie_word_embeddings": not self._has_head,
            "hidden_act": "silu",
            "attention_bias": self._family.model_type != "qwen2" and "model.layers.0.self_attn.o_proj.bias" in self,
            "mlp_bias": "model.layers.0.mlp.down_proj.bias" in self,
            "bos_token_id": meta.token_id("bos"),
            "eos_token_id": sorted(end_ids(self._file.get, str(self.origin))) or None,
            "partial_rotary_factor": turned / max(1, head_dim) if turned != head_dim else None,
            "rope_theta": meta.number("rope.freq_base", 10000.0),
            "rope_scaling": self._scaling(head_dim, max_len),
        }
        told |= self._family.keys(meta, told)
        meta.require_all_read(two_ways=self._family.two_ways)
        return told

    def vocab_size(self) -> int:
        """Rows of the embedding. Raises `ModelLoadError` where there is none."""
        if "model.embed_tokens.weight" not in self:
            raise ModelLoadError(
                f"{self.origin} lacks the tensor 'token_embd.weight': it is no whole model; download it again"
            )
        return self.shape("model.embed_tokens.weight")[0]

    def _scaling(self, head_dim: int, max_len: int) -> dict[str, object] | None:
        """How rotary positions are stretched, if they are."""
        meta = self._meta
        theta, kind = meta.number("rope.freq_base", 10000.0), meta.value("rope.scaling.type", "none")
        if _DIVISORS in self._file.names():
            if kind != "none":
                raise meta.error("rope.scaling.type", f"beside {_DIVISORS}")
            return self._llama3(self._file.tensor(_DIVISORS).double(), head_dim, theta)
        if kind == LONGROPE and not self._family.has_factors:
            raise meta.error("rope.scaling.type")
        if kind in ("none", LONGROPE):
            return None
        return {
            "rope_type": kind,
            "factor": meta.number("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": meta.count("rope.scaling.original_context_length", max_len),
            **{name: meta.value(f"rope.scaling.yarn_{name}") for name in _YARN},
        }

    def _llama3(self, divisors: Tensor, head_dim: int, theta: float) -> dict[str, object]:
        """The rule behind the numbers: Llama 3's constants with the file's own factor, if they give these numbers."""
        rule = RopeConfig(
            dim=head_dim, theta=theta, kind="llama3", factor=shortest(float(divisors.max())), original_max_len=8192
        )
        plain = frequencies(RopeConfig(dim=head_dim, theta=theta))
        if not torch.allclose(plain / frequencies(rule), divisors, rtol=1e-4):
            raise ModelLoadError(
                f"{self.origin}: {_DIVISORS} are not Llama 3's rotary divisors, the only ones that outdraft reads: "
                "take the model's safetensors"
            )
        return {
            "rope_type": rule.kind,
            "factor": rule.factor,
            "original_max_position_embeddings": rule.original_max_len,
            "low_freq_factor": rule.low_freq_factor,
            "high_freq_factor": rule.high_freq_factor,
        }


def restore_rows(rows: Tensor, num_heads: int) -> Tensor:
    """llama.cpp's order of q or k rows to Hugging Face's: [H * d, ...] -> [H * d, ...]."""
    pairs = rows.view(num_heads, -1, 2, *rows.shape[1:])  # [H, d / 2, 2, ...]
    return pairs.transpose(1, 2).flatten(0, 2)


def reorder_rows(rows: Tensor, num_heads: int) -> Tensor:
    """`restore_rows` undone: channels half a head apart become neighbours."""
    halves = rows.view(num_heads, 2, -1, *rows.shape[1:])  # [H, 2, d / 2, ...]
    return halves.transpose(1, 2).flatten(0, 2)


def theirs_of(name: str, family: GgufFamily) -> str:
    """Hugging Face's tensor name to llama.cpp's; raises `ModelLoadError` for a name that the two do not share."""
    stem, _, kind = name.rpartition(".")
    top = {ours: theirs for theirs, ours in family.top_names.items()}
    if stem in top:
        return f"{top[stem]}.{kind}"
    parts = stem.split(".", 3)  # model layers N self_attn.q_proj
    layer = {ours: theirs for theirs, ours in family.layer_names.items()}
    if parts[:2] != ["model", "layers"] or len(parts) < 4 or parts[3] not in layer:
        raise ModelLoadError(f"tensor '{name}' has no counterpart in GGUF files: use llama.cpp's convert_hf_to_gguf.py")
    return f"blk.{parts[2]}.{layer[parts[3]]}.{kind}"


def _rename(name: str, family: GgufFamily) -> str:
    """llama.cpp's tensor name to Hugging Face's; a name that is not known stays, and is reported as unexpected."""
    if name.startswith("blk."):
        _, layer, part, kind = (*name.split("."), "")[:4]
        return f"model.layers.{layer}.{family.layer_names[part]}.{kind}" if part in family.layer_names else name
    part, _, kind = name.rpartition(".")
    return f"{family.top_names[part]}.{kind}" if part in family.top_names else name


def _is_blocks(name: str) -> bool:
    return name.endswith(".blocks")
