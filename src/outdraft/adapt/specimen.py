"""A specimen: a fixed text, and what a draft and its target said of it when the draft was known to be sound.

    then    target: log p of each next token    draft: log q of it, at depth 1 and 2    taps, tensors, config.json
    now     the same numbers by one pass of each; the gap is the mean of |then - now| over positions, in nats

    gap of the target      of the draft               finding
    2 nats and more                                   target: another model
    small                  0.06 and more              mismatch: the draft is not what its record says
    0.1 to 2               more than the target's     the same
    0.1 to 2               no more than that          quantization: of the target, or a fine-tuned one
    small                  small                      none: taps, weights, norms and vocabulary are the record's

No request is needed, and chance has no part in it: what is left of a gap in a sound pair is rounding. Between float32
and bfloat16 it was 0.02 nats of the draft and 0.04 of the target (docs/adaptation.md). Which part of a draft is wrong
follows from the record: other taps; tensors with other numbers; another config.json; or none of these, and the same
files are computed otherwise.

What a specimen cannot show: a draft that was trained too little keeps its own record; text of another template or
domain is no part of it; and while the target is another quantization, a fault that changes less than that did is
hidden.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.adapt.evidence import ERRORS, Evidence
from outdraft.adapt.kinds import Finding, Kind

Nats = tuple[float | None, ...]
_MOST = 5.0  # nats of one position; as much where only one of both says anything of the token
_ROUNDING = 0.015  # of a draft's gap, nats
_TARGET_ROUNDING = 0.025
_ANOTHER = 2.0  # gap of a target that is another model
_NAMED = 3  # tensors that a sentence names


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """T + 1 ids, and T log probabilities of the next one from the target and from the draft at each depth."""

    ids: tuple[int, ...]
    target: Nats
    draft: tuple[Nats, ...]  # None: not guessed, or a token that the draft cannot say
    taps: tuple[int, ...]
    tensors: Mapping[str, str]  # a digest of each tensor in the draft's files, by its name there
    config: str  # a digest of its config.json

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Specimen":
        """What `data` gave. Raises `KeyError`, `TypeError` or `ValueError` for what is none."""
        ids, target, draft = data["ids"], data["target"], data["draft"]
        if not draft or any(len(one) != len(ids) - 1 for one in (target, *draft)):
            raise ValueError(f"a specimen of {len(ids)} ids has {len(ids) - 1} numbers of the target and at each depth")
        return cls(
            ids=tuple(ids),
            target=tuple(target),
            draft=tuple(map(tuple, draft)),
            taps=tuple(data["taps"]),
            tensors=dict(data["tensors"]),
            config=str(data["config"]),
        )


def gap(then: Nats, now: Nats) -> float:
    """Mean of |then - now| over the positions where either says something, nats."""
    both = [(a, b) for a, b in zip(then, now, strict=True) if a is not None or b is not None]
    far = [_MOST if a is None or b is None else min(_MOST, abs(a - b)) for a, b in both]
    return sum(far) / max(1, len(far))


def compare(record: Specimen, now: Specimen) -> list[Finding]:
    """About the target, then about the draft. `now`: of the same ids."""
    model = gap(record.target, now.target)
    draft = max(gap(then, its) for then, its in zip(record.draft, now.draft, strict=True))
    about_model = Evidence(effect=model, standard_error=_TARGET_ROUNDING, threshold=ERRORS * _TARGET_ROUNDING)
    of_model = model if about_model.is_alarm else 0.0
    about_draft = Evidence(effect=draft, standard_error=_ROUNDING, threshold=max(of_model, ERRORS * _ROUNDING))
    part, what = _part(record, now)
    other = model >= _ANOTHER
    by = f"says of its record's text {model:.2f} nats a token otherwise than then"
    return [
        Finding(
            kind=Kind.TARGET if other else Kind.QUANTIZATION,
            evidence=about_model,
            sentence=f"The target {by}, so it is another model: name the one that the draft was trained for."
            if other
            else f"The target {by}, as another quantization or a fine-tuned one does: serve the one that the draft was "
            "trained for, or let the draft learn from this one's answers (weigh=even).",
        ),
        Finding(
            kind=Kind.MISMATCH,
            evidence=about_draft,
            part=part,
            sentence=f"The draft says of its record's text {draft:.2f} nats a token otherwise than then: {what}; "
            "learning would not cure it.",
        ),
    ]


def _part(record: Specimen, now: Specimen) -> tuple[str, str]:
    """The part of a draft that is not the record's, and what to do about it."""
    if record.taps != now.taps:
        return (
            "taps",
            f"it reads the target after layers {_shown(now.taps)}, and learned to after {_shown(record.taps)}",
        )
    shared = record.tensors.keys() & now.tensors.keys()
    changed = sorted(name for name in shared if record.tensors[name] != now.tensors[name])
    lost = sorted(record.tensors.keys() ^ now.tensors.keys())
    if changed or lost:
        names = (changed or lost)[:_NAMED]
        return "weights", (
            f"{len(changed) + len(lost)} of {len(record.tensors)} tensors are not the record's ({_shown(names)}), as "
            "of an unfinished training or a damaged copy, so put its weights back"
        )
    if record.config != now.config:
        return "config", "its config.json is not the record's (norms, rotary base, sizes), so put it back"
    return "code", "its files are the record's, so the code computes them otherwise: try the version that trained it"


def _shown(several: Seq[object]) -> str:
    return ", ".join(map(str, several))
