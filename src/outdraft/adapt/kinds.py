"""What may be wrong with a draft's guesses, and what follows from each."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from outdraft.adapt.evidence import Evidence


class Kind(StrEnum):
    """What is wrong with a draft's guesses."""

    HEALTHY = "healthy"
    TARGET = "target"
    MISMATCH = "mismatch"
    TEMPLATE = "template"
    DRIFT = "drift"
    QUANTIZATION = "quantization"
    ANCHOR = "anchor"
    LONG_RANGE = "long_range"
    UNIFORM = "uniform"
    UNKNOWN = "unknown"


class Cure(StrEnum):
    """What follows from a diagnosis."""

    NOTHING = "nothing"
    LEARN_EARLY = "learn, early positions weighted"
    LEARN_LATE = "learn, late positions weighted and windows longer"
    LEARN = "learn"
    MEND = "train nothing: mend what is wrong"


CURES: Mapping[Kind, Cure] = MappingProxyType(
    {
        Kind.TARGET: Cure.MEND,
        Kind.MISMATCH: Cure.MEND,
        Kind.TEMPLATE: Cure.MEND,
        Kind.DRIFT: Cure.LEARN,
        Kind.QUANTIZATION: Cure.MEND,
        Kind.ANCHOR: Cure.LEARN_EARLY,
        Kind.LONG_RANGE: Cure.LEARN_LATE,
        Kind.UNIFORM: Cure.LEARN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was asked of something else than acceptance: an alarm, or the evidence that there is none."""

    kind: Kind
    evidence: Evidence
    sentence: str  # what is known and what to do, if it is an alarm
    part: str = ""  # of a mismatch: taps, weights, config or code
