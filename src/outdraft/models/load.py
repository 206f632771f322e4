"""Load a Hugging Face model directory into a `Decoder`, and save a decoder as one.

Every parameter starts as NaN; whatever the files do not fill, name wrongly or shape wrongly is one clear error.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.errors import ModelLoadError
from outdraft.models.base import Decoder
from outdraft.models.config import ModelConfig
from outdraft.models.gpt2 import GPT2
from outdraft.models.gpt_neox import GPT_NEOX
from outdraft.models.llama import LLAMA, MISTRAL
from outdraft.models.naming import Architecture, Entry, stored_shapes
from outdraft.models.qwen import QWEN2, QWEN3
from outdraft.weights.hub import resolve
from outdraft.weights.safetensors import SINGLE, TensorStore, save_tensors
from outdraft.weights.sentinel import require_filled

ARCHITECTURES = {kind.model_type: kind for kind in (LLAMA, MISTRAL, QWEN2, QWEN3, GPT_NEOX, GPT2)}
DTYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64,
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
}  # fmt: skip
_STORED = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def load_model(
    path: str | Path, dtype: str | torch.dtype | None = None, device: str = "cpu", *, native: bool = False
) -> Decoder:
    """The model in directory `path` (or of that Hugging Face name), ready to run.

    dtype: a name, or None / "auto" for the type that the weights are stored in. native: run on the native kernels
    where they know the model; hidden states and logits are float32 then.
    """
    directory = resolve(str(path))
    raw = read_json(directory / "config.json")
    kind = find_architecture(raw)
    config = kind.read({**raw, **read_generation(directory)})
    store = TensorStore(directory)
    entries = list(kind.table(config))
    names = _resolve_names(store, kind, entries, config)
    decoder = Decoder(config, _dtype(dtype, store), device)
    parameters = dict(decoder.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for entry in entries:
            if entry.ours == "lm_head.weight" and config.tie_embeddings:
                continue
            target = parameters[entry.ours]
            theirs = [names[name] for name in entry.theirs]
            for name, shape in zip(theirs, stored_shapes(entry, tuple(target.shape)), strict=True):
                if store.shape(name) != shape:
                    raise ModelLoadError(
                        f"tensor '{name}' in {directory} has shape {store.shape(name)}, config.json asks for {shape}"
                    )
            target.copy_(entry.join([store[name] for name in theirs]))
    require_filled(parameters.items(), directory)
    decoder.eval().requires_grad_(False)
    if not (native and decoder.accelerate()):
        decoder.set_exact(True)
    return decoder


def save_model(decoder: Decoder, directory: str | Path) -> None:
    """Write config.json and model.safetensors as transformers reads them."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = decoder.config
    kind = ARCHITECTURES[config.architecture]
    parameters = dict(decoder.named_parameters(remove_duplicate=False))
    tensors: dict[str, Tensor] = {}
    for entry in kind.table(config):
        if not (entry.ours == "lm_head.weight" and config.tie_embeddings):
            tensors |= entry.split(parameters[entry.ours].detach())
    dtype = str(decoder.embedding.dtype).removeprefix("torch.")
    head = {"architectures": [kind.class_name], "model_type": kind.model_type, "torch_dtype": dtype}
    (directory / "config.json").write_text(json.dumps({**head, **kind.write(config)}, indent=2) + "\n")
    save_tensors(tensors, directory / SINGLE)


def find_architecture(raw: dict[str, object]) -> Architecture:
    """The architecture that a config.json names."""
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelLoadError(f"config.json: model_type={name!r} is not supported (supported: {known})")
    return ARCHITECTURES[name]


def read_json(path: Path) -> dict[str, object]:
    """A JSON object, or a `ModelLoadError` that says what is wrong with the file."""
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path.parent} has no {path.name}: is it a model directory?") from error
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON ({error}): download it again") from error
    if not isinstance(raw, dict):
        raise ModelLoadError(f"{path} holds a {type(raw).__name__}, not an object")
    return raw


def read_generation(directory: Path) -> dict[str, object]:
    """The end-of-text ids of generation_config.json: chat models keep theirs there, and it wins over config.json."""
    path = directory / "generation_config.json"
    ids = read_json(path).get("eos_token_id") if path.exists() else None
    return {} if ids is None else {"eos_token_id": ids}


def _resolve_names(
    store: TensorStore, kind: Architecture, entries: Iterable[Entry], config: ModelConfig
) -> dict[str, str]:
    """Canonical name -> name in the files; missing and unexpected tensors are errors."""
    names: dict[str, str] = {}
    tied = {name for entry in entries if entry.ours in ("lm_head.weight", "embedding") for name in entry.theirs}
    for entry in entries:
        for name in entry.theirs:
            bare = name.removeprefix(kind.prefix)
            if name in store or bare in store:
                names[name] = name if name in store else bare
    if config.tie_embeddings:  # either of the two may be the one that is stored
        stored = sorted(tied & set(names))
        names.update({name: names[stored[0]] for name in tied - set(names) if stored})
    wanted = [name for entry in entries for name in entry.theirs]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise ModelLoadError(f"{store.directory} lacks {len(missing)} tensors, e.g. {', '.join(sorted(missing)[:3])}")
    unexpected = sorted(
        name for name in set(store) - set(names.values()) if not name.endswith(kind.ignored or ("\0",))
    )  # fmt: skip
    if unexpected:
        raise ModelLoadError(
            f"{store.directory} has {len(unexpected)} tensors that its config.json does not explain, "
            f"e.g. {', '.join(unexpected[:3])}"
        )
    return names


def _dtype(wanted: str | torch.dtype | None, store: TensorStore) -> torch.dtype:
    if isinstance(wanted, torch.dtype):
        return wanted
    if wanted is not None and wanted != "auto":
        if wanted not in DTYPES:
            raise ModelLoadError(f"dtype={wanted!r} is not known (known: auto, {', '.join(DTYPES)})")
        return DTYPES[wanted]
    stored = store.dtype_name(next(iter(store)))
    if stored not in _STORED:
        raise ModelLoadError(f"{store.directory} stores weights as {stored}, supported: {', '.join(_STORED)}")
    return _STORED[stored]
