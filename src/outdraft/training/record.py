"""OUT/training.json, the record of a trained draft: its plan, its target, its texts, its promised acceptance."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from torch import Tensor

from outdraft.adapt.specimen import Specimen
from outdraft.codecs.text import TextCodec
from outdraft.core.learner import TARGET
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.mark import norm_mark
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json

RECORD = "training.json"
_ROW = re.compile(r"\[[^\[\]{}\"]+\]")  # numbers alone: they stand in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseTerms:
    """What is promised about: as plain data, so that it can be stored with the draft."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int
    depth: int
    temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a trainer said of a draft."""

    terms: PromiseTerms
    tau: float  # tokens a pass
    standard_error: float
    conditional: tuple[float, ...]  # acceptance at 1, 2, ...
    exhausted: bool = False  # it is about every held-out example: there were no more


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """The part that a check reads."""

    kind: str
    dtype: str  # of the target in training
    target: Mapping[str, Any]
    promises: tuple[Promise, ...]
    modifies_target: bool = False  # the draft's target is the one in the folder beside it
    original_target: Mapping[str, Any] = field(default_factory=dict)  # what that one was before it learned along
    options: Mapping[str, Any] = field(default_factory=dict)  # of the kind, as the user gave them
    chat_template: str | None = None  # its digest when the texts were encoded; None: it was not noted
    specimen: Specimen | None = None  # what draft and target said of a fixed text; None: it was not noted
    marks: tuple[int, ...] = ()  # ids with which the prompts of its chats end


def read_record(directory: Path) -> TrainingRecord:
    """Raises `ConfigError` where there is none that can be read."""
    path = directory / RECORD
    try:
        raw = load_json(path)
        promises = tuple(_promise(one) for one in raw["promises"])
        return TrainingRecord(
            kind=raw["kind"],
            dtype=raw["dtype"],
            target=raw["target"],
            promises=promises,
            chat_template=raw.get("chat_template"),
            modifies_target=bool(raw.get("modifies_target", False)),
            original_target=raw.get("original_target") or {},
            options=(raw.get("plan") or {}).get("options") or {},
            specimen=None if raw.get("specimen") is None else Specimen.of(raw["specimen"]),
            marks=tuple(raw.get("marks", ())),
        )
    except OSError as error:
        raise ConfigError(f"{directory} holds no {RECORD}: it was not trained by `outdraft train` ({error})") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path} is damaged ({error!r}): train again, or take it from a copy") from error


def write_record(directory: Path, record: Mapping[str, Any]) -> None:
    """Write a record beside the draft that it is about."""
    with new_file(directory / RECORD) as beside:
        indented = json.dumps(record, indent=1)
        beside.write_text(_ROW.sub(lambda row: " ".join(row[0].split()), indented) + "\n", encoding="utf-8")


def _promise(raw: Mapping[str, Any]) -> Promise:
    """Raises `ValueError` or one of its like for what no trainer writes."""
    terms = PromiseTerms(**{**raw["terms"], "prompts": tuple(tuple(prompt) for prompt in raw["terms"]["prompts"])})
    tau, standard_error, temperature = (
        float(one) for one in (raw["tau"], raw["standard_error"], raw["terms"]["temperature"])
    )
    counts = (terms.max_tokens, terms.depth, *(len(prompt) for prompt in terms.prompts))
    ids = [token for prompt in terms.prompts for token in prompt]
    if not all(type(one) is int and one >= 1 for one in counts) or not all(type(one) is int for one in ids):
        raise ValueError("a promise is about prompts of token ids, and at least one token behind each")
    if not (0 < tau < inf and standard_error >= 0 and 0 <= temperature < inf):
        raise ValueError(f"a promise of {tau} tokens a pass, give or take {standard_error}, at {temperature}")
    return Promise(
        terms=terms,
        tau=tau,
        standard_error=standard_error,
        conditional=tuple(map(float, raw["conditional"])),
        exhausted=bool(raw.get("exhausted", False)),
    )


def require_target(record: TrainingRecord, directory: Path, target: str, known: Mapping[str, Any]) -> None:
    """Raise `ConfigError` unless `target`, whose fingerprint is `known`, is what the draft in `directory` is for."""
    if {key: known.get(key) for key in record.target} == record.target:  # records of before have no mark of norms
        return
    if record.modifies_target:
        raise ConfigError(
            f"{directory} was trained together with its target ({record.target}), and {target} ({known}) is another: "
            f"name the one that was trained with it, --target {directory / TARGET}"
        )
    raise ConfigError(
        f"{directory} was trained for another target ({record.target}) than {target} ({known}): name its own, or have "
        f"the draft follow (outdraft train {record.kind} --target {target} --init {directory} --data ANSWERS --out DIR)"
    )


def template_digest(codec: TextCodec | None) -> str:
    """Of the chat template that chats are written by; "" where there is none."""
    template = codec.chat_template if codec is not None else None
    return "" if template is None else hashlib.sha256(template.source.encode()).hexdigest()[:16]


def fingerprint(target: Decoder) -> dict[str, Any]:
    """Which target it is: its sizes, and a digest of some of its weights that another one would not have."""
    whole = hashlib.sha256()
    for name, parameter in sorted(target.named_parameters()):
        some: Tensor = parameter.detach().flatten()[:: max(1, parameter.numel() // 4096)].float().cpu()
        whole.update(name.encode() + some.numpy().tobytes())
    config = target.config
    return {
        "weights": whole.hexdigest()[:16],
        "norm": norm_mark(target),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
    }
