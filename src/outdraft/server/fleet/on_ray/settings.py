"""How many replicas there are, and what each of them gets."""

from dataclasses import dataclass

from outdraft.options.checked import check_fields
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Raises `ConfigError` naming what is out of range."""

    replicas: int = 1  # engines; with max_replicas, the fewest
    max_replicas: int | None = None  # None: there are always as many as `replicas`
    target_ongoing_requests: int = 8  # of a replica: with more of them Ray starts another one
    max_ongoing_requests: int = 256  # of a replica: the next ones wait before it
    cpus: float = 1  # cores that Ray reserves for a replica
    health_check_period: float = 10.0  # seconds
    affinity: bool = True  # requests go where their prefix and their drafter are warm; False: Ray's own choice

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "replicas", "max_replicas", "target_ongoing_requests", "max_ongoing_requests", least=1)
        check_range(self, "cpus", "health_check_period", least=0)
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ConfigError(
                f"max_replicas={self.max_replicas} is less than replicas={self.replicas}: give as many, or leave it out"
            )
