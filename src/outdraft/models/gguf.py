"""A GGUF file seen as a Hugging Face model: its metadata as a config.json, its tensors under Hugging Face's names.

    blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight        output_norm.weight -> model.norm.weight

llama.cpp turns neighbouring channels where everybody else turns channels half a head apart, so its converter reorders
the rows of q and k of Llama models, and we put them back:  [h, d/2, 2] -> [h, 2, d/2].  Qwen's rows are as they were.

Linear maps that are stored as Q8_0 or Q4_0 are on our own grid of integers, and stay on it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.core.checked import check_value
from outdraft.core.errors import ModelLoadError
from outdraft.core.shown import shown
from outdraft.kernels.decoder import grid
from outdraft.models.naming import Entry, is_linear
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.rope import RopeConfig, frequencies
from outdraft.weights.gguf import GRIDS, GgufFile
from outdraft.weights.source import TensorSource

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_DIVISORS = "rope_freqs.weight"  # Llama 3's slowed rotary pairs, as numbers instead of a rule
_SCALING = ("type", "factor", "original_context_length", "finetuned", "yarn_beta_fast", "yarn_beta_slow")  # are read
_FOREIGN = ("expert", "scale", "softcap", "nextn", "clamp")  # arithmetic that the shared block does not do


class GgufModel(TensorSource):
    """The tensors of a GGUF file by Hugging Face's names; `variant` names how they were rounded."""

    def __init__(self, path: Path) -> None:
        self.origin = path
        self._file = GgufFile(path)
        self._arch = self._file.get("general.architecture")
        if self._arch not in ARCHITECTURES:
            raise ModelLoadError(
                f"{path}: general.architecture={self._arch!r} is not read from GGUF files "
                f"(supported: {', '.join(ARCHITECTURES)}): take the model's safetensors"
            )
        self._names = {_rename(name): name for name in self._file.names() if name != _DIVISORS}
        rounding = self._file.rounding()
        self.variant = f"gguf-{rounding}" if rounding else ""

    def keep_integers(self, table: Iterable[Entry]) -> QuantConfig | None:
        """Offer integers and scales in place of the weights that are on our grid; None if there are none.

        A map of ours that is made of several of theirs needs all of them to be of one type.
        """
        bits: dict[str, int] = {}
        kept: list[str] = []
        for entry in table:
            map_name, _, kind = entry.ours.rpartition(".")
            if kind != "weight" or not is_linear(map_name):
                continue
            kinds = {self._file.kind(self._names[name]) for name in entry.theirs if name in self}
            if len(kinds) == 1 and kinds <= set(GRIDS) and all(name in self for name in entry.theirs):
                bits[map_name] = GRIDS[kinds.pop()]
                for name in entry.theirs:
                    theirs = self._names.pop(name)
                    self._names |= {f"{name.removesuffix('weight')}{part}": theirs for part in ("qweight", "scales")}
            else:
                kept.append(map_name)
        if not bits:
            return None
        most = Counter(bits.values()).most_common(1)[0][0]
        others = tuple((name, own) for name, own in bits.items() if own != most)
        return QuantConfig(bits=most, group_size=32, keep=tuple(kept), layer_bits=others)

    def __getitem__(self, name: str) -> Tensor:
        theirs = self._names[name]
        if name.endswith(".scales"):
            return self._restored(name, self._file.integers(theirs)[1])
        if name.endswith(".qweight"):
            integers = self._restored(name, self._file.integers(theirs)[0])
            return grid.pack(integers, GRIDS[self._file.kind(theirs)])
        return self._restored(name, self._file.tensor(theirs))

    def _restored(self, name: str, tensor: Tensor) -> Tensor:
        """The rows in Hugging Face's order."""
        if self._arch == "llama" and ".self_attn." in name:
            for part, key in (("q_proj", "head_count"), ("k_proj", "head_count_kv")):
                if f".{part}." in name:
                    return restore_rows(tensor, self._count(f"attention.{key}", self._count("attention.head_count")))
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        theirs = self._names[name]
        shape = self._file.shape(theirs)
        if name.endswith(".scales"):
            return (shape[0], shape[1] // 32)
        if name.endswith(".qweight"):
            return (shape[0], shape[1] * GRIDS[self._file.kind(theirs)] // 8)
        return shape

    def dtype_name(self, name: str) -> str:
        """F32, F16 or BF16; blocks of small integers are made whole as BF16, where they do not stay integers."""
        if name.endswith(".scales"):
            return "F32"
        if name.endswith(".qweight"):
            return "I8" if self._file.kind(self._names[name]) == "Q8_0" else "U8"
        kind = self._file.kind(self._names[name])
        return kind if kind in ("F32", "F16") else "BF16"

    def read_config(self) -> dict[str, object]:
        """The metadata in the words of a config.json."""
        for key in self._file.keys(f"{self._arch}."):
            if any(word in key for word in _FOREIGN) and "rope" not in key and self._file.get(key):
                raise ModelLoadError(f"{self.origin}: {key}={self._file.get(key)!r} is not supported")
        if "model.embed_tokens.weight" not in self:
            raise ModelLoadError(f"{self.origin} lacks the tensor 'token_embd.weight': is it a whole model?")
        heads, width = self._count("attention.head_count"), self._count("embedding_length")
        head_dim = self._count("attention.key_length", width // max(1, heads))
        if self._count("rope.dimension_count", head_dim) != head_dim:
            turned = self._count("rope.dimension_count")
            raise ModelLoadError(
                f"{self.origin}: {self._arch}.rope.dimension_count={turned}, but only whole heads of {head_dim} "
                "channels are turned"
            )
        window = self._value("attention.sliding_window")
        max_len = self._count("context_length")
        ends = [self._token_id(kind) for kind in ("eos", "eot")]
        return {
            "model_type": "mistral" if self._arch == "llama" and window else self._arch,
            "vocab_size": self.shape("model.embed_tokens.weight")[0],
            "hidden_size": width,
            "num_hidden_layers": self._count("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._count("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "intermediate_size": self._count("feed_forward_length"),
            "max_position_embeddings": max_len,
            "rms_norm_eps": self._number("attention.layer_norm_rms_epsilon", 1e-5),
            "tie_word_embeddings": "lm_head.weight" not in self,
            "hidden_act": "silu",
            "sliding_window": window,
            "attention_bias": self._arch != "qwen2" and "model.layers.0.self_attn.o_proj.bias" in self,
            "mlp_bias": "model.layers.0.mlp.down_proj.bias" in self,
            "bos_token_id": self._token_id("bos"),
            "eos_token_id": sorted({end for end in ends if end is not None}) or None,
            "rope_theta": self._number("rope.freq_base", 10000.0),
            "rope_scaling": self._scaling(head_dim, max_len),
        }

    def _scaling(self, head_dim: int, max_len: int) -> dict[str, object] | None:
        """How rotary positions are stretched, if they are."""
        theta = self._number("rope.freq_base", 10000.0)
        if _DIVISORS in self._file.names():
            return self._llama3(self._file.tensor(_DIVISORS).double(), head_dim, theta)
        kind = self._value("rope.scaling.type", "none")
        if kind == "none":
            return None
        for key in self._file.keys(f"{self._arch}.rope.scaling."):
            if key.rpartition(".")[2] not in _SCALING:
                raise ModelLoadError(
                    f"{self.origin}: {key}={self._file.get(key)!r} is not supported: take the model's safetensors"
                )
        return {
            "rope_type": kind,
            "factor": self._number("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": self._count("rope.scaling.original_context_length", max_len),
            "beta_fast": self._value("rope.scaling.yarn_beta_fast"),
            "beta_slow": self._value("rope.scaling.yarn_beta_slow"),
        }

    def _llama3(self, divisors: Tensor, head_dim: int, theta: float) -> dict[str, object]:
        """The rule behind the numbers: Llama 3's constants with the file's own factor, if they give these numbers."""
        rule = RopeConfig(
            dim=head_dim, theta=theta, kind="llama3", factor=_shortest(float(divisors.max())), original_max_len=8192
        )
        plain = frequencies(RopeConfig(dim=head_dim, theta=theta))
        if not torch.allclose(plain / frequencies(rule), divisors, rtol=1e-4):
            raise ModelLoadError(
                f"{self.origin}: {_DIVISORS} are not Llama 3's rotary divisors, the only ones that are known: "
                "take the model's safetensors"
            )
        return {
            "rope_type": rule.kind, "factor": rule.factor, "original_max_position_embeddings": rule.original_max_len,
            "low_freq_factor": rule.low_freq_factor, "high_freq_factor": rule.high_freq_factor,
        }  # fmt: skip

    def _value(self, key: str, default: Any = None) -> Any:
        return self._file.get(f"{self._arch}.{key}", default)

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._value(key, default)
        if value is None:
            raise ModelLoadError(f"{self.origin} lacks the metadata '{self._arch}.{key}': download it again")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ModelLoadError(
                f"{self.origin}: {self._arch}.{key}={shown(value)} is not supported (one number for all)"
            )
        return value

    def _number(self, key: str, default: float) -> float:
        name = f"{self._arch}.{key}"
        return _shortest(check_value(name, self._value(key, default), float, of=str(self.origin), error=ModelLoadError))

    def _token_id(self, kind: str) -> int | None:
        name = f"tokenizer.ggml.{kind}_token_id"
        read = check_value(name, self._file.get(name), int | None, of=str(self.origin), error=ModelLoadError)
        return None if read is None else int(read)


def restore_rows(rows: Tensor, num_heads: int) -> Tensor:
    """llama.cpp's order of q or k rows to Hugging Face's: [H * d, ...] -> [H * d, ...]."""
    pairs = rows.view(num_heads, -1, 2, *rows.shape[1:])  # [H, d / 2, 2, ...]
    return pairs.transpose(1, 2).flatten(0, 2)


def reorder_rows(rows: Tensor, num_heads: int) -> Tensor:
    """`restore_rows` undone: channels half a head apart become neighbours."""
    halves = rows.view(num_heads, 2, -1, *rows.shape[1:])  # [H, 2, d / 2, ...]
    return halves.transpose(1, 2).flatten(0, 2)


def theirs_of(name: str) -> str:
    """Hugging Face's tensor name to llama.cpp's; raises `ModelLoadError` for a name that the two do not share."""
    stem, _, kind = name.rpartition(".")
    top = {ours: theirs for theirs, ours in _TOP.items()}
    if stem in top:
        return f"{top[stem]}.{kind}"
    parts = stem.split(".", 3)  # model layers N self_attn.q_proj
    layer = {ours: theirs for theirs, ours in _LAYER.items()}
    if parts[:2] != ["model", "layers"] or len(parts) < 4 or parts[3] not in layer:
        raise ModelLoadError(f"tensor '{name}' has no name in GGUF files: use llama.cpp's convert_hf_to_gguf.py")
    return f"blk.{parts[2]}.{layer[parts[3]]}.{kind}"


def _rename(name: str) -> str:
    """llama.cpp's tensor name to Hugging Face's; a name that is not known stays, and is reported as unexpected."""
    if name.startswith("blk."):
        _, layer, part, kind = (*name.split("."), "")[:4]
        return f"model.layers.{layer}.{_LAYER[part]}.{kind}" if part in _LAYER else name
    part, _, kind = name.partition(".")
    return f"{_TOP[part]}.{kind}" if part in _TOP else name


def _shortest(value: float) -> float:
    """The number that was meant: 1e-5, where float32 holds 9.99999974e-06."""
    return float(f"{value:.7g}")
