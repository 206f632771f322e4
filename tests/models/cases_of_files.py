"""A small file of every sort for each row of docs/files_of_others.md, with and without what the row names."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from models.published import writers
from safetensors.torch import load_file, save_file

from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.merge import merge_lora
from outdraft.models.target.open_network import load_network
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import random_decoder, tiny_config, tiny_model

IDS = torch.tensor([5, 6, 7, 8])
Write = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`write` a directory, `change` it as the row says, `load` what counts of it. `words`: of the error or the line."""

    write: Write
    change: Write
    load: Callable[[Path], Any]
    words: tuple[str, ...] = ()


def logits(directory: Path) -> list[float]:
    return load_model(directory)(IDS, torch.arange(4), CausalContext(1, 4)).flatten().tolist()


def save_tiny(directory: Path) -> None:
    save_model(tiny_model(dtype=torch.float32), directory)


def tell(directory: Path, *, part: str | None = None, **keys: Any) -> None:
    """Set keys of config.json, or of a table in it; `...` takes a key out."""
    path = directory / "config.json"
    raw = json.loads(path.read_text())
    table = raw if part is None else raw.setdefault(part, {})
    table.update(keys)
    for key in [key for key, value in table.items() if value is ...]:
        del table[key]
    path.write_text(json.dumps(raw))


def edit(directory: Path, change: Callable[[dict], dict]) -> None:
    path = directory / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


# -- shards and weights --


def save_shards(directory: Path) -> None:
    """Two copies of every tensor; the index names the first."""
    save_tiny(directory)
    whole = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    for shard, scale in (("a", 1), ("b", 2)):
        save_file({name: tensor * scale for name, tensor in whole.items()}, directory / f"{shard}.safetensors")
    index(directory, dict.fromkeys(whole, "a.safetensors"))


def index(directory: Path, table: dict[str, str]) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


def place(directory: Path, file: str, *names: str) -> None:
    """Let the index name another file for these tensors; for all by default."""
    path = directory / "model.safetensors.index.json"
    table = json.loads(path.read_text())["weight_map"]
    index(directory, {**table, **dict.fromkeys(names or table, file)})


def narrowed(dtype: torch.dtype, directory: Path) -> None:
    edit(directory, lambda own: {name: one.to(dtype) if "q_proj" in name else one for name, one in own.items()})


def save_tied(directory: Path) -> None:
    save_tiny(directory)
    edit(directory, lambda own: {name: one for name, one in own.items() if name != "lm_head.weight"})
    tell(directory, tie_word_embeddings=True)


def save_wide(directory: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Numbers that bfloat16 has, in a type of the same size."""
    config = tiny_config(layers=1, hidden=64, inner=96, heads=2, kv_heads=1)
    save_model(random_decoder(config, dtype=torch.bfloat16, exact=False), directory, dtype)


SHARDS = partial(Case, write=save_shards, load=logits)
WEIGHTS = partial(Case, write=save_tiny, load=logits)
LORA = "model.layers.0.self_attn.q_proj.lora_A.weight"


def add_adapter(directory: Path, *, alone: bool = False, told: bool = True) -> None:
    if told:
        (directory / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    save_file({LORA: torch.ones(2)}, directory / "adapter_model.safetensors")
    if alone:
        (directory / "model.safetensors").unlink()
        (directory / "config.json").unlink()


def lora_tensors(rank: int) -> dict[str, torch.Tensor]:
    """Of the first layer's queries, 32 wide."""
    noise, name = torch.Generator().manual_seed(rank), f"base_model.model.{LORA}"
    shapes = {name: (rank, 32), name.replace("lora_A", "lora_B"): (32, rank)}
    return {key: torch.randn(shape, generator=noise) for key, shape in shapes.items()}


def save_lora(directory: Path, tensors: dict[str, torch.Tensor] | None = None, **told: Any) -> None:
    """An adapter beside a model, in a folder of its own."""
    (place := directory / "lora").mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "bias": "none", "target_modules": ["q_proj"], **told}
    (place / "adapter_config.json").write_text(json.dumps(config))
    save_file({**lora_tensors(2), **(tensors or {})}, place / "adapter_model.safetensors")


def save_adapted(directory: Path) -> None:
    save_tiny(directory)
    save_lora(directory)


def merged(directory: Path) -> list[float]:
    """The logits of both together."""
    with tempfile.TemporaryDirectory() as out:
        merge_lora(str(directory), str(directory / "lora"), Path(out))
        return logits(Path(out))


def lora(*words: str, tensors: dict[str, torch.Tensor] | None = None, **told: Any) -> Case:
    return Case(
        write=save_adapted,
        load=merged,
        change=lambda place: save_lora(place, tensors, **told),
        words=words or tuple(told),
    )


# -- quantization --


def save_rounded(made: tuple[Any, Any], directory: Path) -> None:
    directory.mkdir()
    published, _ = writers.publish(directory, *made)
    for path in published.iterdir():
        shutil.move(path, directory / path.name)


def rounded(made: Callable[[], tuple[Any, Any]], *words: str, **keys: Any) -> Case:
    return Case(
        write=lambda place: save_rounded(made(), place),
        load=logits,
        words=words or tuple(keys),
        change=lambda place: tell(place, part="quantization_config", **keys),
    )


ADAPTER, TOLD, FACTORS = "adapter_config.json", "LoRA, adapter_config.json", "LoRA, adapter_model.safetensors"
INDEX, ONE, CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
GPTQ, AWQ, PACKED, ROUND, MODELOPT = "GPTQ", "AWQ", "compressed-tensors", "AutoRound", "ModelOpt"
FILES = {
    (INDEX, "weight_map"): SHARDS(change=lambda at: place(at, "b.safetensors")),
    (INDEX, "weight_map, a file that is not there"): SHARDS(
        change=lambda at: place(at, "gone.safetensors"), words=("gone.safetensors",)
    ),
    (INDEX, "weight_map, a tensor that its file lacks"): SHARDS(
        change=lambda at: place(at, "a.safetensors", "more.weight"), words=("more.weight", "a.safetensors")
    ),
    (INDEX, "weight_map, a file outside the directory"): SHARDS(
        change=lambda at: place(at, "../a.safetensors"), words=("outside the directory",)
    ),
    (INDEX, "weight_map, a second copy of a tensor"): SHARDS(
        change=lambda at: save_file({**load_file(at / "a.safetensors"), "more": IDS}, at / "a.safetensors"),
        words=("not read there", "more"),
    ),
    (INDEX, "the whole file, beside model.safetensors"): WEIGHTS(
        change=lambda at: index(at, {}), words=("index.json beside it is not",)
    ),
    (ONE, "lm_head.weight beside tie_word_embeddings"): Case(
        write=save_tied,
        load=logits,
        change=lambda at: edit(at, lambda own: {**own, "lm_head.weight": -own["model.embed_tokens.weight"]}),
    ),
    **{
        (ONE, f"the prefix {prefix} of every name"): WEIGHTS(
            change=lambda at, prefix=prefix: edit(at, lambda own: {prefix + name: one for name, one in own.items()}),
            words=(prefix,),
        )
        for prefix in ("_orig_mod.", "_fsdp_wrapped_module.", "module.")
    },
    (ONE, "float16"): Case(
        write=save_wide,
        change=lambda at: save_wide(at, torch.float16),
        words=("stored as float16",),
        load=lambda at: [(net := load_network(at)).dtype, net.embedding.flatten().tolist()],
    ),
    **{
        (ONE, f"{words} without a quantization record"): WEIGHTS(change=partial(narrowed, kind), words=("q_proj", told))
        for words, kind, told in (("integers", torch.int8, "I8"), ("8-bit floats", torch.float8_e4m3fn, "F8_E4M3"))
    },
    (ONE, "a tensor that nothing explains"): WEIGHTS(
        change=lambda at: edit(at, lambda own: {**own, "warp": IDS}), words=("warp",)
    ),
    (ADAPTER, "beside weights"): WEIGHTS(change=add_adapter, words=("peft_type", "outdraft merge")),
    (ADAPTER, "without weights"): WEIGHTS(
        change=partial(add_adapter, alone=True), words=("peft_type", "outdraft merge")
    ),
    ("adapter_model.safetensors", "beside weights"): WEIGHTS(
        change=partial(add_adapter, told=False), words=("an adapter", "outdraft merge")
    ),
    (TOLD, "r"): lora("lora_A", tensors=lora_tensors(3), r=3),
    (TOLD, "lora_alpha"): lora(lora_alpha=9),
    (TOLD, "use_rslora"): lora(use_rslora=True),
    (TOLD, "rank_pattern"): lora(tensors=lora_tensors(3), rank_pattern={"self_attn.q_proj": 3}),
    (TOLD, "alpha_pattern"): lora(alpha_pattern={r"layers\.\d+\.self_attn\.q_proj": 9.5}),
    (TOLD, "peft_type"): lora(peft_type="IA3"),
    (TOLD, "bias"): lora(bias="lora_only"),
    (TOLD, "init_lora_weights"): lora(init_lora_weights="pissa_niter_4"),
    (TOLD, "use_dora"): lora(use_dora=True),
    (TOLD, "lora_bias"): lora(lora_bias=True),
    (TOLD, "modules_to_save"): lora(modules_to_save=["lm_head"]),
    (TOLD, "layer_replication"): lora(layer_replication=[[0, 2], [1, 2]]),
    (TOLD, "target_parameters"): lora(target_parameters=["experts.down_proj"]),
    (TOLD, "trainable_token_indices"): lora(trainable_token_indices=[3]),
    (TOLD, "alora_invocation_tokens"): lora(alora_invocation_tokens=[3]),
    (TOLD, "any other key"): lora(warp=3),
    (FACTORS, "lora_embedding_A, lora_embedding_B"): lora(
        "lora_embedding_A", tensors={"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(2, 61)}
    ),
    (FACTORS, "lora_magnitude_vector, a bias, a whole weight"): lora(
        "q_proj.bias", tensors={"base_model.model.model.layers.0.self_attn.q_proj.bias": torch.ones(32)}
    ),
    (FACTORS, "factors of a module that the model has not"): lora(
        "layers.7", tensors={name.replace("layers.0", "layers.7"): one for name, one in lora_tensors(2).items()}
    ),
    (FACTORS, "factors of pictures or sound"): lora(
        "pictures", tensors={name.replace("layers.0", "vision_tower.0"): one for name, one in lora_tensors(2).items()}
    ),
    (ONE, "lora_A, lora_B, base_layer"): WEIGHTS(
        change=lambda at: edit(at, lambda own: {**own, LORA: torch.ones(2)}), words=("lora_A", "merge_and_unload")
    ),
    (CONFIG, "quantization_config.quant_method"): rounded(writers.gptq, quant_method="exl2"),
    (GPTQ, "bits"): rounded(writers.gptq, bits=3),
    (GPTQ, "group_size"): rounded(writers.gptq, group_size=0),
    (GPTQ, "checkpoint_format"): rounded(writers.gptq, checkpoint_format="gptq_v2"),
    (GPTQ, "is_marlin_format"): rounded(writers.gptq, is_marlin_format=True),
    (GPTQ, "pack_dtype"): rounded(writers.gptq, pack_dtype="int8"),
    (GPTQ, "dynamic"): rounded(writers.gptq, dynamic={"+:.*down.*": {"bits": 8}}),
    (GPTQ, "any other key"): rounded(writers.gptq, warp=3),
    (AWQ, "version"): rounded(writers.awq, version="gemv"),
    (AWQ, "backend"): rounded(writers.awq, backend="llm-awq"),
    (AWQ, "zero_point"): rounded(writers.awq, zero_point=False),
    (AWQ, "any other key"): rounded(writers.awq, warp=3),
    ("FP8", "fmt"): rounded(writers.fp8, fmt="e5m2"),
    ("FP8", "weight_block_size"): rounded(writers.fp8, weight_block_size=[3]),
    ("FP8", "activation_scheme"): rounded(writers.fp8, activation_scheme="dynamic"),
    (PACKED, "format"): rounded(writers.packed, format="marlin-24"),
    (PACKED, "quantization_status"): rounded(writers.packed, quantization_status="frozen"),
    (PACKED, "sparsity_config"): rounded(writers.packed, sparsity_config={"format": "sparse-24-bitmask"}),
    (PACKED, "transform_config"): rounded(writers.packed, transform_config={"config_groups": {"u": {}}}),
    (PACKED, "kv_cache_scheme"): rounded(writers.packed, kv_cache_scheme={"num_bits": 8}),
    (ROUND, "packing_format"): rounded(writers.auto_round, packing_format="auto_round:marlin"),
    (ROUND, "data_type"): rounded(writers.auto_round, data_type="mx_fp"),
    (ROUND, "extra_config"): rounded(writers.auto_round, extra_config={"a": {"bits": 8}}),
    (ROUND, "act_bits"): rounded(writers.auto_round, act_bits=8),
    (ROUND, "any other key"): rounded(writers.auto_round, warp=3),
    (MODELOPT, "quant_algo"): rounded(writers.modelopt, quant_algo="NVFP4_AWQ"),
    (MODELOPT, "kv_cache_scheme"): rounded(writers.modelopt, kv_cache_scheme={"num_bits": 8}),
    (MODELOPT, "any other key"): rounded(writers.modelopt, warp=3),
}
