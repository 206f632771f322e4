"""The flags of `outdraft serve --ray`: how many engines, on which cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import default_of, flag, flag_name
from outdraft.options.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.server.fleet.on_ray.settings import ReplicaSettings

_PLACES = ("model", "draft_model", "head", "datastore")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayFlags:
    """Several engines behind one address (docs/scale.md)."""

    ray: bool = flag(False, "run the server as an application of Ray Serve (docs/scale.md)")
    ray_address: str | None = flag(
        None, "the Ray cluster; without it Ray runs on this machine alone", metavar="ADDRESS"
    )
    replicas: int = flag(1, "engines; with --max-replicas, the fewest")
    max_replicas: int | None = flag(None, "the most engines; Ray starts and ends them by load")
    target_ongoing_requests: int = flag(8, "requests of an engine; with more of them Ray starts another engine")
    cpus_per_replica: float = flag(1.0, "cores that Ray reserves for an engine")
    ray_routing: bool = flag(False, "Ray chooses the engine of a request by load alone, not by what is warm where")

    def settings(self) -> "ReplicaSettings":
        """As the deployment takes them. Raises `ConfigError` naming what is out of range."""
        from outdraft.server.fleet.on_ray.settings import ReplicaSettings

        return ReplicaSettings(
            replicas=self.replicas, max_replicas=self.max_replicas, cpus=self.cpus_per_replica,
            target_ongoing_requests=self.target_ongoing_requests, affinity=not self.ray_routing,
        )  # fmt: skip

    def check_unused(self) -> None:
        """Without --ray, raise `ConfigError` for what means nothing there."""
        for one in fields(self):
            if one.name != "ray" and getattr(self, one.name) != default_of(one):
                raise ConfigError(f"--{flag_name(one.name)} is for several engines: add --ray, or leave it out")


def from_anywhere(engine: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an engine as other processes read them: paths that begin at the root of the file system."""
    found = {name: engine[name] for name in _PLACES if engine.get(name) and Path(engine[name]).exists()}
    return {**engine, **{name: str(Path(place).resolve()) for name, place in found.items()}}
