"""Why guesses fail, from a specimen of the draft, from what was observed, and from what its training record promised.

    asked in this order   evidence                                               cure
    1  target             the specimen: the target says something else altogether   train nothing: mend what is wrong
       mismatch           the specimen: the draft says something else than then     the same
       template           prompts do not end as those of the training did        the same
    2  drift              acceptance kept the record, and fell at some point     learn from the new traffic
    3  mismatch           acceptance far below the draft's own probability       train nothing: mend what is wrong
    4  quantization       the specimen: the target says nearly the same            train nothing, unless it is asked for
    5  anchor             positions 1..3 below the record, the later ones hold   learn, early positions weighted
       long_range         those behind the 5th below it, the others hold         learn, late ones, longer windows
       uniform            all below it alike                                     learn
    6  healthy, or unknown: nothing of this; unknown where so few rounds would hardly have shown it

The order. What a specimen or the prompts show (`specimen.py`, `template.py`) needs no rounds and leaves nothing to
chance, and learning would bend a sound draft around such a fault. A draft that kept its record and then fell was wired
rightly, so a change over time is asked about before a mismatch by acceptance; off its domain a draft is sure of wrong
guesses, which would look like one. Where a specimen was compared, it alone speaks of a mismatch: a head whose wiring is
wrong may be too unsure of itself to show it. The three shapes exclude each other: each says at which positions the mean
shortfall lies, and the one that explains the counts best, by likelihood, is taken.

Positions 1..3 and those behind the 5th are the rule of the draft-review account.

An alarm needs an effect as large as its threshold *and* so many standard errors, so that a large sample raises none
over a trifle. Standard errors are widened by the dispersion of blocks of rounds (`change.py`). With 4 standard errors,
independent rounds of a healthy draft raise an alarm in less than one diagnosis of 500; each one is another chance.

The record must be about the same shape of guess (chains or trees, and where a policy ends them) and the same
temperature as the rounds. Where these or the traffic differ from the trainer's, make a record of rounds that were
observed when the draft was known to be sound (`AcceptanceRecord.of`).
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import ceil, sqrt

from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.change import Change, find_change, variance
from outdraft.adapt.evidence import POWER, Evidence
from outdraft.adapt.examined import Bin, Examined
from outdraft.adapt.kinds import CURES, Cure, Finding, Kind
from outdraft.adapt.observe import Observed

_EARLY = 3  # positions up to it are the anchor
_LATE = 5  # positions behind it are long range
_SHORTFALL = 0.05  # acceptance below the record, from which on it is a fault
_OVERCONFIDENCE = 0.15  # own probability above acceptance, from which on it is a mismatch
_LEAST_ROUNDS = 500  # fewer say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong, how that is known, and what to do."""

    kind: Kind
    cure: Cure
    sentence: str
    rounds: int
    evidence: Evidence | None  # for this kind; of a healthy draft, that nothing is wrong; None: nothing could be asked
    asked: Mapping[Kind, Evidence]  # all that was asked: `power` says what would have been found
    wanted_rounds: int = 0  # of an unknown one: about how many say something; 0: no number of them would
    since: int | None = None  # of a drift: rounds before it
    part: str = ""  # of a mismatch that a specimen showed: taps, weights, config or code


def diagnose(observed: Observed, record: AcceptanceRecord | None = None, findings: Seq[Finding] = ()) -> Diagnosis:
    """What is wrong with the guesses of one drafter, judged by all rounds that were observed.

    `record`: None where none is known; then of acceptance only a change and a mismatch can be found. `findings`: of a
    specimen (`specimen.compare`) and of prompts (`ServedMarks.finding`). After the draft's weights were replaced,
    observe anew: the rounds before say nothing about them.
    """
    whole = observed.whole
    change = find_change(observed.blocks, whole.acceptance if record is None else record.acceptance)
    widened = 1.0 if change is None else sqrt(change.dispersion)
    asked = dict[Kind, Evidence]()
    if (drift := _drift(change, record)) is not None:
        asked[Kind.DRIFT] = drift
    if record is not None:
        asked |= _shapes(whole, record, widened)
    known = {one.kind: one for one in findings}
    mismatch = _mismatch(whole, observed.calibration, record, asked.get(Kind.UNIFORM), widened)
    if mismatch is not None and Kind.MISMATCH not in known:
        asked[Kind.MISMATCH] = mismatch
    rounds, base = int(whole.rounds), asked.get(Kind.UNIFORM, mismatch)
    wanted = 0 if rounds >= _LEAST_ROUNDS else _LEAST_ROUNDS
    if base is not None and rounds:
        wanted = max(wanted, ceil(rounds * base.shortage) if base.power < POWER else 0)
    alarms = [kind for kind, one in asked.items() if one.is_alarm] if rounds >= _LEAST_ROUNDS else []
    alarms += [one.kind for one in findings if one.evidence.is_alarm]
    asked |= {one.kind: one.evidence for one in findings}
    kind = _first(alarms, asked, known) or (Kind.HEALTHY if base is not None and not wanted else Kind.UNKNOWN)
    found = known.get(kind)
    return Diagnosis(
        kind=kind,
        cure=CURES.get(kind, Cure.NOTHING),
        sentence=found.sentence if found else _sentence(kind, asked.get(kind, base), change, wanted),
        rounds=rounds,
        evidence=asked.get(kind, base),
        asked=asked,
        wanted_rounds=wanted if kind is Kind.UNKNOWN else 0,
        since=change.at if change is not None and kind is Kind.DRIFT else None,
        part=found.part if found else "",
    )


def _first(alarms: list[Kind], asked: Mapping[Kind, Evidence], known: Mapping[Kind, Finding]) -> Kind | None:
    """The one that is asked first; of the shapes the likeliest."""
    exact = [kind for kind in (Kind.TARGET, Kind.MISMATCH, Kind.TEMPLATE) if kind in known]
    for kind in (*exact, Kind.DRIFT, Kind.MISMATCH, Kind.QUANTIZATION):
        if kind in alarms:
            return kind
    return max(alarms, key=lambda kind: asked[kind].z, default=None)


def _drift(change: Change | None, record: AcceptanceRecord | None) -> Evidence | None:
    """A fall from the record to below it; None where acceptance was below it all along, by two standard errors."""
    if change is None:
        return None
    if record is not None and change.before - 2 * change.standard_error >= _SHORTFALL:
        return None
    fall = change.after - change.before
    effect = fall if record is None else min(fall, change.after)
    return Evidence(effect=effect, standard_error=change.standard_error, threshold=_SHORTFALL)


def _mismatch(
    whole: Examined, bins: Seq[Bin], record: AcceptanceRecord | None, shortfall: Evidence | None, widened: float
) -> Evidence | None:
    """How far the draft's own probability is above acceptance, beyond what the record has of that.

    Where the record does not say: no farther than acceptance is below the record, since a draft that keeps it is wired
    rightly, however sure it is.
    """
    count = sum(one.count for one in bins)
    if not count:
        return None
    effect = sum(one.sure - one.right for one in bins) / count  # of eldest children: what the draft would guess alone
    if record is not None and record.confidence is not None:
        columns = zip(whole.said, whole.sure, whole.right, record.confidence, record.acceptance, strict=False)
        known = [(n, sure - right - n * (own - rate)) for n, sure, right, own, rate in columns]
        effect = min(effect, sum(excess for _, excess in known) / sum(n for n, _ in known))
    elif shortfall is not None:
        effect = min(effect, shortfall.effect)
    noise = sum(variance(right, n) * n for right, n in zip(whole.right, whole.said, strict=True))
    return Evidence(effect=effect, standard_error=widened * sqrt(noise) / count, threshold=_OVERCONFIDENCE)


def _shapes(whole: Examined, record: AcceptanceRecord, widened: float) -> dict[Kind, Evidence]:
    """Mean shortfalls of groups of positions, each weighted by its precision, as maximum likelihood has it."""
    shortfalls, precisions = [], []
    columns = zip(whole.accepted, whole.reached, record.acceptance, strict=False)
    for i, (accepted, reached, rate) in enumerate(columns):
        noise = variance(accepted, reached) / reached
        if record.reached is not None:
            noise += variance(rate * record.reached[i], record.reached[i]) / record.reached[i]
        shortfalls.append(rate - accepted / reached)
        precisions.append(1 / (widened**2 * noise))
    groups = {
        Kind.UNIFORM: range(len(precisions)),
        Kind.ANCHOR: range(_EARLY) if len(precisions) > _EARLY else range(0),
        Kind.LONG_RANGE: range(_LATE, len(precisions)),
    }
    return {
        kind: Evidence(
            effect=sum(precisions[i] * shortfalls[i] for i in group) / sum(precisions[i] for i in group),
            standard_error=1 / sqrt(sum(precisions[i] for i in group)),
            threshold=_SHORTFALL,
        )
        for kind, group in groups.items()
        if group
    }


def _sentence(kind: Kind, evidence: Evidence | None, change: Change | None, wanted: int) -> str:
    """What is known and what to do, in one sentence."""
    if kind is Kind.UNKNOWN and not wanted:
        return "Guesses say nothing without a record of their acceptance or a probability of the draft's own."
    if evidence is None:
        return f"Too few rounds to tell: {wanted} at least are wanted."
    by = f"{evidence.effect:.2f}"
    return {
        Kind.DRIFT: f"Acceptance held for {change.at if change else 0} rounds and then fell by {by} of a guess: the "
        "traffic has changed, so let the draft learn from the new one.",
        Kind.MISMATCH: f"The draft's own probability is {by} above acceptance: compare its taps, chat template, "
        "vocabulary, norms and quantization with those of its training, because learning would not cure it.",
        Kind.ANCHOR: f"Positions 1 to {_EARLY} are accepted {by} less often than the record says and later ones "
        "hold: learn with the early positions weighted.",
        Kind.LONG_RANGE: f"Positions behind {_LATE} are accepted {by} less often than the record says and the "
        "earlier ones hold: learn with the late positions weighted, from longer windows.",
        Kind.UNIFORM: f"All positions are accepted {by} less often than the record says, as on other traffic or "
        "after a training that ended too soon: let the draft learn.",
        Kind.HEALTHY: f"No fault of {2 * evidence.threshold:.2f} in acceptance is in sight: leave the draft as it is.",
        Kind.UNKNOWN: f"Too few rounds to tell: about {wanted} would show a fault of {2 * evidence.threshold:.2f}.",
    }[kind]
