"""What the operator of an engine says of a draft that keeps learning: `LLM(..., adapt=True | {...})`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outdraft.adapt.gate import GateOptions
from outdraft.adapt.learning import Learning
from outdraft.core.registry import read_options
from outdraft.options.checked import check_fields
from outdraft.options.ranges import check_range

_TABLES = {"learn": Learning, "gate": GateOptions}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptOptions:
    """Raises `ConfigError` naming what is unknown or out of range."""

    room: str = ""  # the directory of what is kept; "": one for this target and draft, in the user's cache
    opt_in: bool = False  # only requests that say adapt=True are learned from; else all but those that say adapt=False
    learner: bool = True  # start the process that learns; False: take versions that another process writes in the room
    while_busy: bool = False  # learn while requests run, too, at idle priority; else the learner is stopped meanwhile
    threads: int = 1  # of the learner
    seconds_an_hour: float = 3600.0  # of a processor that the learner may take
    first: int = 4096  # tokens learned before a draft is tried
    num_kept: int = 2000  # requests of a tenant that are kept, the latest
    days: float = 30.0  # after which they are deleted
    max_tenants: int = 16  # that are learned from; requests of further ones leave nothing
    tenants_a_key: int = 4  # of one API key, by its requests' `cache_salt`; in Python of one word before a slash in it
    learn: Mapping[str, Any] = field(default_factory=dict)  # of `Learning`
    gate: Mapping[str, Any] = field(default_factory=dict)  # of `GateOptions`

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "threads", least=1, most=1024)
        check_range(self, "seconds_an_hour", least=0.0, most=1e6)
        check_range(self, "first", least=1)
        check_range(self, "num_kept", least=8, most=1 << 20)
        check_range(self, "days", least=1e-6)
        check_range(self, "max_tenants", "tenants_a_key", least=1, most=4096)
        for name, options in _TABLES.items():
            read_options(options, getattr(self, name), f"adapt {name}")

    @property
    def learning(self) -> Learning:
        return read_options(Learning, self.learn, "adapt learn")

    @property
    def gating(self) -> GateOptions:
        return read_options(GateOptions, self.gate, "adapt gate")
