"""Reading heads that other projects wrote: their configuration and tensors, wherever they keep them.

Nothing is believed that the files claim: names and shapes are compared with the network's before anything is copied.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.head_format import HeadFormat
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.models.families.shared.fields import check_keys
from outdraft.models.families.shared.naming import Entry, stored_shapes
from outdraft.models.files.load import read_json, require_filled
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.renamed import NamedTensors, open_tensors
from outdraft.weights.safetensors import SINGLE, save_tensors
from outdraft.weights.source import TensorSource

Net = TypeVar("Net", bound=nn.Module)
_log = logging.getLogger(__name__)
_TABLES = ("rotary_emb.inv_freq",)  # which can be computed
_SPECULATORS = ("speculators_model_type", "speculators_version", "speculators_config", "transformer_layer_config")


def read_config(directory: Path) -> Mapping[str, Any]:
    """What config.json says; nothing where there is none that can be read."""
    try:
        return read_json(directory / "config.json")
    except ModelLoadError:
        return {}


def all_formats() -> Iterator[tuple[str, HeadFormat[Any, Any, Any]]]:
    """Every kind of draft that ships, with every layout of its directories."""
    for kind in learner_names():
        for one in find_learner(kind).formats:
            yield kind, one


def recognise(directory: Path) -> tuple[str, HeadFormat[Any, Any, Any] | None] | None:
    """Which kind of draft lies in a directory, and its layout where the kind has several; None: of no known kind."""
    for kind, one in all_formats():
        if one.matches(directory):
            return kind, one
    named = named_kind(read_config(directory))
    return None if named is None else (named, None)


def named_kind(config: Mapping[str, Any]) -> str | None:
    """The kind of draft that a config.json names; None: none, and so of a whole model."""
    return next((kind for kind in learner_names() if find_learner(kind).is_named(config)), None)


def drafter_of(kind: str) -> str:
    """The method that drafts with a draft of this kind."""
    return find_learner(kind).drafter or kind


def instead(directory: Path, *, but: Iterable[HeadFormat[Any, Any, Any]] = ()) -> str:
    """For an error: which method reads what lies there; nothing where none does. `but`: layouts that it is not of."""
    found = recognise(directory)
    if found is None or any(one in find_learner(found[0]).formats for one in but):
        return ""
    return f"; what lies there is for the method {drafter_of(found[0])!r}"


def tensor_names(directory: Path) -> frozenset[str]:
    """The names of the tensors in a directory; none where nothing can be read."""
    try:
        return frozenset(open_tensors(directory))
    except ModelLoadError:
        return frozenset()


def tell_count(directory: Path, told: Mapping[str, Any], key: str, counted: int) -> None:
    """One line where config.json names another number of parts than the file holds, which are all used."""
    if told.get(key, counted) != counted:
        _log.warning(
            "%s: %s=%s in config.json, and the file holds %d: these are used",
            directory.name,
            key,
            shown(told[key]),
            counted,
        )


def stored_dtype(tensors: TensorSource, begins: tuple[str, ...] = ("",)) -> torch.dtype:
    """The narrowest type that holds every number of the tensors whose names begin so; float32 where none is real."""
    found = {tensors.real_dtype(name) for name in tensors if name.startswith(begins)}
    return reduce(torch.promote_types, [one for one in found if one is not None] or [torch.float32])


def under_names(source: TensorSource, ours: Callable[[str], str | None]) -> NamedTensors:
    """The tensors under the names that `ours` gives; None: left out. Raises `ModelLoadError` for two of one name that
    differ."""
    names = dict[str, str]()
    for name in source:
        own = ours(name)
        if own is None or (first := names.setdefault(own, name)) == name:
            continue
        if source.shape(first) != source.shape(name) or not torch.equal(source[first], source[name]):
            raise ModelLoadError(
                f"{source.origin} holds two tensors for {own!r} that differ, {first!r} and {name!r}: take the draft "
                "from its publisher again, or delete the wrong one"
            )
    return NamedTensors(source, names)


def check_beside_layers(raw: Mapping[str, Any], known: Iterable[str]) -> None:
    """Keys of speculators' layout beside the layers' own: refused where they may change what is computed, else one
    line names those that are not `known`."""
    name = str(raw.get("speculators_model_type"))
    check_keys(raw, {*known, *_SPECULATORS}, name, strict=False)


def fill(
    make: Callable[[torch.device | None], Net],
    entries: Iterable[Entry] | None,
    tensors: TensorSource,
    what: str,
    *,
    beside: Iterable[str] = (),
) -> Net:
    """A network with the parameters of `tensors`, not to be trained. `make`: lay it out on a device, or where it runs.
    `entries`: where each parameter stands; None: under its own name.

    Raises `ModelLoadError` for what is missing, misshapen, NaN or without a meaning; `what`: the network, in words;
    `beside`: tensors that are no parameters.
    """
    try:
        plan = dict(make(torch.device("meta")).named_parameters())
    except (RuntimeError, ZeroDivisionError) as error:  # sizes that PyTorch cannot count, or that do not divide
        raise ModelLoadError(f"{what}: its config.json asks for an impossible network ({error})") from error
    if entries is None:
        entries = [Entry(ours=name, theirs=(name,)) for name in plan]
    table = list(entries)
    known = {name for entry in table for name in entry.theirs} | set(beside)
    unknown = sorted(name for name in set(tensors) - known if not name.endswith(_TABLES))
    if unknown:
        raise ModelLoadError(f"{what}: {len(unknown)} tensors are none that outdraft knows ({', '.join(unknown[:3])})")
    for entry in table:
        for name, shape in zip(entry.theirs, stored_shapes(entry, tuple(plan[entry.ours].shape)), strict=True):
            if name not in tensors or tensors.shape(name) != shape:
                found = f"has shape {tensors.shape(name)}" if name in tensors else "is missing"
                raise ModelLoadError(
                    f"{what}: tensor {name!r} {found}; its config.json asks for {shape}: take "
                    "both files from one place, or download them again"
                )
            tensors.require_real(name)
    net = make(None)
    own = dict(net.named_parameters())
    with torch.no_grad():
        for entry in table:
            entry.fill(own[entry.ours], [tensors[name] for name in entry.theirs])
    require_filled(own.items(), tensors.origin)
    return net.eval().requires_grad_(False)


def tensors_of_net(net: nn.Module, entries: Iterable[Entry], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """A network's parameters under the names of others. `dtype`: of the numbers; their own by default."""
    own, made = dict(net.named_parameters()), dict[str, Tensor]()
    for entry in entries:
        kept = dtype or own[entry.ours].dtype
        made |= {name: part.to(kept) for name, part in entry.split(own[entry.ours].detach()).items()}
    return made


def write_directory(
    directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, name: str = SINGLE
) -> None:
    """config.json, and the tensors in the file `name`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_tensors(tensors, directory / name)


def speculators_config(
    algorithm: str, target_name: str | None, architectures: Seq[str], num_tokens: int = 3
) -> dict[str, Any]:
    """What config.json says in speculators' layout of any draft; `architectures`: the target's."""
    way = {"proposal_type": "greedy", "speculative_tokens": num_tokens, "accept_tolerance": 0.0, "verifier_accept_k": 1}
    return {
        "speculators_model_type": algorithm,
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [way],
            "verifier": {"name_or_path": target_name, "architectures": list(architectures)},
        },
    }


def read_head(
    directory: Path,
    formats: Seq[HeadFormat[Net, Decoder | TargetPort, Any]],
    target: Decoder | TargetPort,
    dtype: torch.dtype | None,
    *,
    what: str,
) -> Net:
    """The network in a directory of any of the formats. Raises `ModelLoadError` where it is of none."""
    for one in formats:
        if one.matches(directory):
            return one.read(directory, target, dtype)
    known = "; ".join(f"{one.name}: {one.summary}" for one in formats)
    raise ModelLoadError(
        f"{directory} holds no {what} in a layout that outdraft reads ({known}){instead(directory, but=formats)}"
    )
