"""What a draft's guesses fare by when it is sound: the reference of a diagnosis."""

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path

from outdraft.adapt.observe import Observed
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

RECORD = "training.json"  # which `outdraft train` writes beside a draft


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRecord:
    """What a draft did when it was known to be sound; the first number is of position 1. Raises `ConfigError`.

    `promised` reads the one of its training record.
    """

    acceptance: tuple[float, ...]  # P(accepted at i | reached i)
    confidence: tuple[float, ...] | None = None  # its mean own probability at i; None: not known
    reached: tuple[float, ...] | None = None  # guesses that the acceptance was measured on; None: it is exact

    def __post_init__(self) -> None:
        if not self.acceptance:
            raise ConfigError("acceptance=(): a record is about one position at least")
        for name, least, most in (("acceptance", 0.0, 1.0), ("confidence", 0.0, 1.0), ("reached", 1.0, inf)):
            column = getattr(self, name)
            check_range(self, name, least=least, most=most)
            if column is not None and len(column) != len(self.acceptance):
                raise ConfigError(
                    f"{name} has {len(column)} positions, acceptance {len(self.acceptance)}: give as many"
                )

    @classmethod
    def promised(cls, draft: Path) -> "AcceptanceRecord | None":
        """What the draft in a folder promised when it was trained; None where it says nothing that can be read."""
        try:
            promise = json.loads((draft / RECORD).read_text(encoding="utf-8"))["promises"][-1]
            return cls(acceptance=tuple(map(float, promise["conditional"])))
        except (OSError, ValueError, KeyError, TypeError, IndexError, ConfigError):
            return None

    @classmethod
    def of(cls, observed: Observed) -> "AcceptanceRecord":
        """What these rounds showed."""
        whole = observed.whole
        sure = tuple(whole.confidence) if whole.said == whole.reached else None
        return cls(acceptance=tuple(whole.acceptance), confidence=sure, reached=tuple(whole.reached))
