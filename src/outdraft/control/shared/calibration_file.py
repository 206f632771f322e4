"""What was counted of a draft's confidences, as a file beside it: `outdraft train calibration` writes it.

    {"draft": "3f0c9a...", "temperatures": [0.0, 1.0], "bins": [[0.12, 0.08, 311.0], ...]}

A bin: the mean confidence of its tokens, the share that was accepted, how many they were. Data in: shares; data out:
the same, checked.
"""

import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from outdraft.control.shared.reliability import Share
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json

FILE = "calibration.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """What was counted, of which draft, in which texts."""

    draft: str  # which weights said it (`weights/digest.py`)
    temperatures: tuple[float, ...]
    shares: tuple[Share, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        told = {"draft": self.draft, "temperatures": self.temperatures, "bins": [list(one) for one in self.shares]}
        with new_file(path) as beside:
            beside.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def read_calibration(path: Path) -> CalibrationFile:
    """Raises `ConfigError` for a file that is missing, damaged, or says what cannot be."""
    try:
        raw = load_json(path)
        shares = tuple(Share(*map(float, one)) for one in raw["bins"])
        found = CalibrationFile(
            draft=str(raw["draft"]), temperatures=tuple(map(float, raw["temperatures"])), shares=shares
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error}): make one with `outdraft train calibration`") from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{path} is no calibration ({error!r}): make it again, outdraft train calibration") from error
    _require_possible(shares, path)
    return found


def _require_possible(shares: Seq[Share], path: Path) -> None:
    for one in shares:
        if not (0 <= one.said <= 1 and 0 <= one.found <= 1 and one.tokens >= 0 and isfinite(one.tokens)):
            raise ConfigError(
                f"{path} holds the bin {list(one)}: a confidence and a share are in 0 .. 1, and tokens are counted"
            )
