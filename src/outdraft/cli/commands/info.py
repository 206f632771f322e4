"""`outdraft info`: what outdraft found on this machine: kernels, threads, memory, packages, models, and those of Ollama
and LM Studio.

With --model also what would run it. Nothing is downloaded and no weights are read.
"""

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import flag
from outdraft.options.errors import CapabilityError, ConfigError

if TYPE_CHECKING:
    import torch

    from outdraft.engine.naming.roles import Companions
    from outdraft.models.networks.config import ModelConfig

SUMMARY = "show what was found on this machine: kernels, threads, memory, packages, models"
EPILOG = """Please add its output to a bug report. Examples:
  outdraft info
  outdraft info --model DIR --json"""
WIDTH = 20  # of the column of names
OPTIONAL = {  # package -> what needs it
    "gguf": "GGUF files",
    "datasets": "train from Parquet",
    "tensorboard": "train --tensorboard",
    "optuna": "tune-skip",
    "transformers": "models that outdraft does not compute itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to look at beside the machine itself."""

    model: str | None = flag(
        None, "also describe this model: a directory, a hub name, a GGUF file, zoo:NAME, ollama:NAME"
    )
    json: bool = flag(
        False, "machine output: machine, kernels, memory, packages, models, models of other programs, model"
    )


def run(options: Options) -> int:
    """Look at the machine, and the model if one is named, and print what there is."""
    from outdraft.cli.console import make_console, say, write_json

    told = look(options.model)
    if options.json:
        write_json(told)
        return 0
    console = make_console()
    for heading, lines in told.items():
        console.print(heading, style="bold")
        for name, value in lines.items():
            if isinstance(value, dict):
                value = value.get("error") or f"{value['bytes'] / 2**20:.0f} MiB, {value['path']}"
            say(console, f"  {name:<{WIDTH}} {value}")
    return 0


def look(model: str | None = None) -> dict[str, dict[str, Any]]:
    """Heading -> name -> what was found."""
    from outdraft.bench.machine import busy_cores, describe

    machine = describe("cpu")
    busy = busy_cores()
    machine["busy"] = "not known" if busy is None else f"other programs use {busy:.1f} cores now"
    told = {"machine": machine, "kernels": _kernels(), "memory": _memory(), "packages": _packages()}
    told["models"] = _models()
    told["models of other programs"] = _others()
    if learning := _learning():
        told["drafts that learn"] = learning
    return told | ({"model": _model(model)} if model is not None else {})


def _kernels() -> dict[str, Any]:
    from outdraft.kernels.library import KINDS, library, wanted_kind, why_none

    native = library()
    if native is None:
        return {"native": "none: PyTorch computes", "reason": why_none()}
    able = [kind for kind in KINDS if native.od_has_kernels(kind.encode())]
    return {"native": wanted_kind() or "off (OUTDRAFT_KERNELS=off)", "this processor": ", ".join(able)}


def _memory() -> dict[str, Any]:
    from outdraft.engine.assembly.memory import read_memory

    try:
        memory = read_memory()
    except CapabilityError:
        return {"free": "not known"}
    return {"free": f"{memory.free / 2**30:.1f} GiB", "in all": f"{memory.total / 2**30:.1f} GiB"}


def _packages() -> dict[str, Any]:
    found = {}
    for name in ("torch", "tokenizers", "safetensors", "huggingface_hub", *OPTIONAL):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = f"not installed ({OPTIONAL.get(name, 'needed')})"
    return found


def _models() -> dict[str, Any]:
    from outdraft import zoo
    from outdraft.weights.known import KNOWN
    from outdraft.weights.user_cache import user_cache

    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub")
    cached = sorted(
        one.name.removeprefix("models--").replace("--", "/") for one in Path(hub).expanduser().glob("models--*")
    )
    own = user_cache()
    size = sum(file.stat().st_size for file in own.rglob("*") if file.is_file()) if own.is_dir() else 0
    return {
        "ship with it": ", ".join(f"zoo:{name}" for name in zoo.names()),
        "installed": ", ".join(name for name, one in KNOWN.items() if one.places()) or "none",
        "in the hub's cache": ", ".join(cached) or "none",
        "our own cache": f"{own}, {size / 2**20:.0f} MiB",
    }


def _others() -> dict[str, Any]:
    """What `LLM(name)` opens in the folders of Ollama and LM Studio."""
    from outdraft.weights.places import MOST, folders, list_found

    found = list(islice(list_found(), MOST + 1))
    told: dict[str, Any] = dict(sorted(found[:MOST], key=lambda one: one[0]))
    if not found:
        told["none"] = "in " + ", ".join(map(str, folders()))
    if len(found) > MOST:
        told["not all"] = f"more than {MOST} are there"
    return told


def _learning() -> dict[str, Any]:
    """What is known of each draft that learns, by its folder in the cache."""
    from outdraft.adapt.room import SHARED, AdaptRoom
    from outdraft.adapt.spool import read_spool
    from outdraft.weights.user_cache import user_cache

    told = {}
    for place in sorted(user_cache("adapt").glob("*/room.json")):
        try:
            room = AdaptRoom(place.parent)
            draft, shared, seen = room.pair.draft, room.tenant(SHARED), room.observed()
            kept = sum(1 for name in room.tenants() for _ in read_spool(room.tenant(name).requests))
            parts = [f"{draft.parent.name}/{draft.name}, version {shared.version}, {kept} requests kept"]
            if seen:
                rates = " ".join(f"{one:.2f}" for one in seen["acceptance"])
                parts += [f"accepted by position {rates or 'nothing'}", seen["diagnosis"]]
            told[place.parent.name] = "; ".join(parts)
        except ConfigError as error:
            told[place.parent.name] = str(error)
    return told


def _model(name: str) -> dict[str, Any]:
    from outdraft.engine.naming.roles import read_companions
    from outdraft.models.files.load_codec import load_codec
    from outdraft.models.target.open_network import is_adapted
    from outdraft.weights.hub import is_hub_name, resolve
    from outdraft.weights.published_drafts import find_published
    from outdraft.weights.snapshots import find_here

    published = ", ".join(find_published(name)) or "none known"
    if is_hub_name(name) and not Path(name).exists() and find_here(name) is None:
        return {"directory": f"not here: outdraft pull {name}", "public drafts": published}
    directory = resolve(name)
    companions = read_companions(directory)
    found, default = _adapted(directory) if is_adapted(directory, "auto") else _own(directory, companions)
    codec = load_codec(directory)
    belongs = [f"{role} for {drafter}" for role, found in companions.items() for drafter in found]
    return {
        "directory": str(directory),
        **found,
        "tokenizer": "none: token ids only" if codec is None else f"{codec.vocab_size} entries",
        "chat template": "yes" if codec is not None and codec.chat_template is not None else "no",
        "companions": ", ".join(belongs) or "none (companions.json, docs/recipes.md)",
        "public drafts": published,
        "drafts by default": default,
    }


def _own(directory: Path, companions: "Companions") -> tuple[dict[str, Any], str]:
    """Of a model that outdraft computes itself; and what drafts for it."""
    from outdraft.models.files.gguf import GgufModel
    from outdraft.models.files.load import open_weights
    from outdraft.weights.digest import weight_files

    stored = open_weights(directory, blocks=True)
    stored.check_shapes()
    config = stored.config
    told = {
        "runs through": "outdraft",
        "layers": config.num_layers,
        "width": config.hidden_size,
        "vocabulary": config.vocab_size,
        "context": config.max_len,
        "weights": f"{sum(file.stat().st_size for file in weight_files(directory)) / 2**20:.0f} MiB of files",
        "stored in": str(stored.dtype).removeprefix("torch."),
    }
    if isinstance(stored.source, GgufModel):
        told["types by bytes"] = ", ".join(
            f"{100 * share:.1f} % {kind}" for kind, share in stored.source.shares().items()
        )
    return told, _default(config, stored.dtype, companions)


def _adapted(directory: Path) -> tuple[dict[str, Any], str]:
    """Of a model that runs through transformers."""
    from outdraft.models.adapter.plan import read_plan

    plan = read_plan(directory)
    config = plan.config
    told = {
        "runs through": f"{plan.library_name}, slower: outdraft does not compute {plan.kind} itself",
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "vocabulary": config.vocab_size,
        "context": plan.max_len,
        "stored in": str(getattr(config, "dtype", None) or "not said").removeprefix("torch."),
    }
    return told, "nothing: the native kernels do not compute this model; name a drafter"


def _default(config: "ModelConfig", dtype: "torch.dtype", companions: "Companions") -> str:
    """What drafts where the user names no drafter."""
    import torch

    from outdraft.engine.naming.words import Words
    from outdraft.models.networks.native import can_pack
    from outdraft.options.base import NESTED

    if not can_pack(config, dtype, torch.device("cpu")):
        return "nothing: the native kernels do not compute this model here; name a drafter"
    drafters = Words().combine(lambda: companions).drafter_options.drafters
    named = [one if isinstance(one, str) else f"{one[NESTED]} ({one['model']})" for one in drafters]
    return ", ".join(named) + "; --drafter none turns it off"
