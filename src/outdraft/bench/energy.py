"""Joules of the processor, where Linux lets one read them (RAPL: /sys/class/powercap/*/energy_uj).

Most kernels show the counters to root only, and most virtual machines have none: then there is no meter, and a record
says null. The counters are the package's, so other work on the machine is in them.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Rapl:
    """One counter for each package; it wraps at `ranges`."""

    counters: tuple[Path, ...]
    ranges: tuple[int, ...]  # microjoules

    def read(self) -> tuple[int, ...]:
        """The energy counter, in microjoules; only differences mean something."""
        return tuple(int(counter.read_text()) for counter in self.counters)

    def joules(self, before: Seq[int] | None, after: Seq[int]) -> float | None:
        """What was used between two readings."""
        if before is None:
            return None
        used = [
            new - old if new >= old else new - old + top
            for old, new, top in zip(before, after, self.ranges, strict=True)
        ]
        return sum(used) / 1e6


def find_meter(root: Path = POWERCAP) -> Rapl | None:
    """The meter of this machine, or None.

    A package may stand there twice ("intel-rapl:0" and "intel-rapl-mmio:0"), beside zones that hold it ("psys") or lie
    within it ("intel-rapl:0:1"): each is counted once, by its name.
    """
    packages: dict[str, Path] = {}
    for zone in sorted(root.glob("*:*")):
        name = _read(zone / "name")
        if name.startswith("package") and (zone / "energy_uj").exists():
            packages.setdefault(name, zone)
    zones = list(packages.values())
    try:
        meter = Rapl(
            counters=tuple(zone / "energy_uj" for zone in zones),
            ranges=tuple(int((zone / "max_energy_range_uj").read_text()) for zone in zones),
        )
        meter.read()
    except (OSError, ValueError):
        return None
    return meter if zones else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
