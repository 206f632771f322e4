"""A PEFT adapter (LoRA and its kin) in a model's directory: named, and not applied when the model is loaded.

Data in: a directory; data out: an error where the adapter is all there is, one line in the log where it lies beside
weights. Weights that PEFT or a trainer saved under a prefix of its own are read without the prefix.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_json
from outdraft.options.shown import shown
from outdraft.weights.digest import weight_files
from outdraft.weights.renamed import NamedTensors
from outdraft.weights.source import TensorSource

ADAPTER = "adapter_config.json"
MERGE = "merge it into the weights (with peft: merge_and_unload, then save_pretrained)"
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "module.")  # torch.compile, FSDP, data parallel
_PARTS = (".lora_A.", ".lora_B.", ".base_layer.", "lora_embedding_", ".lora_magnitude_vector")
_log = logging.getLogger(__name__)


def find_adapter(directory: Path) -> str | None:
    """An adapter's kind and the model that it is for, in words; None: there is none."""
    try:
        raw = load_json(directory / ADAPTER)
    except FileNotFoundError:
        return "an adapter" if any(directory.glob("adapter_model.*")) else None
    except (OSError, ValueError):
        raw = {}
    told = raw if isinstance(raw, dict) else {}
    kind, base = told.get("peft_type"), told.get("base_model_name_or_path")
    named = f"an adapter ({ADAPTER}: peft_type={shown(kind)})" if kind else f"an adapter ({ADAPTER})"
    return f"{named} for {shown(base)}" if base else named


def refuse_lone_adapter(directory: Path) -> None:
    """Raise `ModelLoadError` where an adapter lies without a model."""
    weights = [path for path in weight_files(directory) if not path.name.startswith("adapter_")]
    if not (weights and (directory / "config.json").exists()) and (found := find_adapter(directory)):
        raise ModelLoadError(
            f"{directory} holds {found} and no model of its own: merge it into its model (outdraft merge MODEL --lora "
            f"{directory} --out DIR), and give the directory that this writes"
        )


def tell_adapter(directory: Path) -> None:
    """One line where an adapter lies beside weights."""
    if found := find_adapter(directory):
        merge = f"merge it into them (outdraft merge {directory} --lora {directory} --out DIR)"
        _log.warning("%s holds %s beside its weights, which is not applied: %s", directory.name, found, merge)


def without_wrapper(source: TensorSource) -> TensorSource:
    """The same tensors without the prefix that a trainer's wrapper gave to every name; one line says so."""
    prefix = next((one for one in WRAPPERS if len(source) and all(name.startswith(one) for name in source)), None)
    if prefix is None:
        return source
    _log.warning("%s: the names of its tensors begin with %s, and are read without it", source.origin.name, prefix)
    return NamedTensors(source, {name.removeprefix(prefix): name for name in source})


def merging(names: Iterable[str]) -> str | None:
    """What to do with tensors of these names where they are an adapter's that was never merged; None: they are not."""
    return f"they are an adapter's, {MERGE}" if any(part in name for name in names for part in _PARTS) else None
