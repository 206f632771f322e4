"""A recipe of the zoo: one TOML file that says what is learned, from which text, for how long.

    kind = "pretrain"        # tokenizer | pretrain | mixture | evaluate
    name = "target"          # results go to OUT/<name>
    run = "run"              # checkpoint and log go to OUT/<name>/<run>; another training of <name> needs another one
    tokenizer = "tokenizer"  # whose ids are learned: OUT/<tokenizer>; left out: the target's
    data = "data.toml"       # the text sources, shared by all recipes of the zoo
    [model]  [loop]  [task]  # shape of the network, the loop's numbers, options of the kind

Data in: a path. Data out: a `TrainingRecipe` of frozen dataclasses; an unknown key is an error that
names the near miss.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.read_file import load_toml
from outdraft.training.config import LoopConfig

T = TypeVar("T")
TARGETS_TOKENIZER = "tokenizer"
KINDS = ("tokenizer", "pretrain", "mixture", "evaluate")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource:
    """One body of text: where it is under --data, where it came from, and its share of the training tokens."""

    name: str
    path: str  # file under --data, or "stdlib" for the running Python's own library
    share: float
    repository: str
    commit: str
    licence: str
    only: str = ""  # keep only records where this JSON field is true
    max_chars: int = 0  # stop after so much text; 0 = all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The sources and how they are cut."""

    sources: tuple[TextSource, ...]
    copies_share: float = 0.1  # of all sequences: a passage, an instruction, the passage again
    num_copies: int = 12000  # how many such documents are made
    tokenizer_chars: int = 20_000_000  # how much text the tokenizer is learned from
    holdout_percent: int = 2  # documents kept for validation, by the hash of their text
    holdout_seed: int = 0  # another number holds out other documents


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainLoop(LoopConfig):
    """The loop's numbers, and how a decoder's passes compute."""

    bfloat16: bool | None = None  # whether passes compute in it; None: where the machine has instructions for it
    compile: bool = False  # torch.compile the loss; needs a C++ compiler
    eval_tokens: int = 65536  # of held-out text that an evaluation reads
    watching: ClassVar[tuple[str, ...]] = (*LoopConfig.watching, "eval_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """A whole recipe; `model` and `task` are read by the kind that owns them."""

    kind: str
    name: str
    data: DataConfig
    loop: PretrainLoop
    tokenizer: str = TARGETS_TOKENIZER
    run: str = "run"
    model: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)


def build(cls: type[T], given: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass `cls`; refuses unknown and missing keys."""
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(cls)}  # type: ignore[arg-type]
    require_keys(given, known, where)
    return cls(**given)


def require_keys(given: Mapping[str, Any], known: Mapping[str, bool], where: str) -> None:
    """Raise `ConfigError` for a key that is not known, or one that lacks. `known`: keys, and whether each is needed."""
    for key in given:
        if key not in known:
            raise ConfigError(f"unknown key {key!r} in {where}{near_miss(key, known)}; it takes: {', '.join(known)}")
    if missing := [key for key, is_needed in known.items() if is_needed and key not in given]:
        raise ConfigError(f"{where} lacks {', '.join(missing)}: add them; it takes: {', '.join(known)}")


def read_recipe(path: Path) -> TrainingRecipe:
    """The recipe in a TOML file; `data` names a second file beside it."""
    raw = _read_toml(path)
    if raw.get("kind") not in KINDS:
        raise ConfigError(f"{path}: kind = {raw.get('kind')!r}; known: {', '.join(KINDS)}")
    data = _read_toml(path.parent / raw.get("data", "data.toml"))
    sources = tuple(build(TextSource, s, f"[[sources]] of {path.parent}") for s in data.pop("sources", []))
    loop = build(PretrainLoop, raw.get("loop", {"steps": 0}), f"[loop] of {path}")
    if not loop.batch_tokens:
        raise ConfigError(f"batch_tokens = 0 in [loop] of {path}: say how many tokens a step learns from")
    given = {**raw, "data": build(DataConfig, {**data, "sources": sources}, "the data file"), "loop": loop}
    return build(TrainingRecipe, given, str(path))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return load_toml(path)
    except FileNotFoundError:
        raise ConfigError(f"no recipe at {path}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no readable TOML: {error}") from error
