"""What to train, on what, for how long: flags and a TOML file become one frozen plan.

    kind = "eagle"                      a drafter that has a learner
    target = "zoo:target"               a model directory
    data = ["answers.jsonl"]            texts, chats, or what an engine wrote (training/examples.py)
    tokens = 2_000_000                  0: once through the data
    [options]                           the kind's own: sizes, depth
    [loss]                              names and weights
    [reinforce]                         reward, window, entropy (training/reinforce.py)
    [loop]                              batch, rates, schedule (training/config.py)

A key that is not known is an error that names the nearest one.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from outdraft.core.learner_registry import find_learner
from outdraft.core.registry import read_options
from outdraft.options.checked import check_fields, check_value
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.ranges import MOST_BYTES, check_range
from outdraft.options.read_file import load_toml
from outdraft.options.shown import shown
from outdraft.training.config import LoopConfig
from outdraft.training.reinforce import ReinforceOptions

DRAFT = LoopConfig(
    steps=0, batch_tokens=0, micro_tokens=2048, warmup=20, decay_share=0.3, eval_every=100, save_every=100
)


REINFORCE = ReinforceOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """Everything that a run depends on. `data`, `out` and `target` are paths as the user wrote them."""

    kind: str
    target: str
    out: str
    data: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()  # to be judged on; else some of the data are held out
    init: str | None = None  # a checkpoint of the same kind to go on from
    tokens: int = 0  # to learn from in all; 0: once through the data
    held_out: float = 0.02  # of the examples, by their text, where there is nothing else to be judged on
    held_out_texts: int = 64  # of them that an evaluation looks at, at most
    depth: int = 4  # tokens of a draft, in evaluations and in the promise
    temperature: float = 1.0  # of evaluations
    dtype: str = "auto"  # of the target
    device: str = "cpu"
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    loss: Mapping[str, float] = field(default_factory=dict)  # none: the kind's own (`LearnMethod.loss`)
    on_policy: float = 0.0  # the share of batches that go on as the draft itself writes
    reinforce: ReinforceOptions = REINFORCE  # of the loss of that name
    cache_bytes: int = 0  # for the target's states on disk; 0: they are made in every pass
    cache_dir: str = ""  # where they lie; "": OUT/run/states
    same_order: bool = False  # every epoch has the batches of the first, which a cache can serve again
    parallel: Literal["ddp", "fully_shard"] = "ddp"  # what workers under torchrun share: batches, or parameters too
    tensorboard: str = ""  # a directory for its files; "": none
    loop: LoopConfig = DRAFT

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "seed", least=0)
        check_range(self, "tokens", "cache_bytes", least=0, most=MOST_BYTES)
        check_range(self, "held_out", least=1e-6, most=0.9)
        check_range(self, "on_policy", least=0.0, most=1.0)
        check_range(self, "held_out_texts", least=1)
        check_range(self, "depth", least=1, most=64)
        check_range(self, "temperature", least=0.0, most=100.0)
        for name in ("steps", "seconds"):
            if self.tokens and (bound := getattr(self.loop, name)):
                raise ConfigError(
                    f"tokens={self.tokens}, {name}={bound}: each says how long the run is: leave one of them out"
                )
        if self.reinforce != REINFORCE and "reinforce" not in self.loss:
            raise ConfigError(
                f"reward={self.reinforce.reward}, window={self.reinforce.window}, entropy={self.reinforce.entropy:g} "
                "are of the loss reinforce, which is not asked for: add it (--loss reinforce=0.1), or leave them out"
            )


def make_plan(given: Mapping[str, Any]) -> TrainPlan:
    """A plan of flags and what a file said. Raises `ConfigError` for what is unknown, missing or of another type."""
    if given.get("kind"):
        find_learner(given["kind"])
    missing = [name for name in ("kind", "target", "out") if not given.get(name)]
    if missing:
        raise ConfigError(
            f"training needs the kind of draft, its target and a directory to write to: {', '.join(missing)} missing"
        )
    asked = dict(given)
    if "loop" in asked:
        check_value("loop", asked["loop"], Mapping[str, Any])
        if (seed := asked["loop"].get("seed")) is not None:
            raise ConfigError(f"the loop takes no seed={shown(seed)} of its own: give the plan's (--seed)")
        asked["loop"] = read_options(LoopConfig, {**asdict(DRAFT), **asked["loop"]}, "the loop")
    if "reinforce" in asked:
        check_value("reinforce", asked["reinforce"], Mapping[str, Any])
        asked["reinforce"] = read_options(ReinforceOptions, asked["reinforce"], "reinforcement")
    return read_options(TrainPlan, asked, "the plan")


def read_plan(path: str | Path) -> dict[str, Any]:
    """What a TOML file says. Raises `ConfigError` for a file that is not there, or no TOML."""
    place = user_path(path)
    try:
        return load_toml(place)
    except OSError as error:
        raise ConfigError(f"{place} cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{place} is no valid TOML: {error}") from error


def merged(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The file's words with the flags' in their places; tables key by key."""
    found = dict(file)
    for key, value in flags.items():
        if isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = {**found[key], **value}
        elif value not in (None, (), {}):
            found[key] = value
    return found


PLAN_FIELDS = tuple(one.name for one in fields(TrainPlan))
