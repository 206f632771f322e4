"""Planted faults are found and named, healthy drafts raise no alarm, and a trifle is none however large the sample."""

from collections import Counter

import numpy as np
import pytest
from adapt.planted import BARE, FALL, RATES, RECORD, Rounds, draw

from outdraft.adapt import diagnose as rules
from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.change import find_change
from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.evidence import Evidence
from outdraft.adapt.kinds import Cure, Kind
from outdraft.adapt.observe import Observed
from outdraft.options.errors import ConfigError

CURES = {
    Kind.ANCHOR: Cure.LEARN_EARLY,
    Kind.LONG_RANGE: Cure.LEARN_LATE,
    Kind.UNIFORM: Cure.LEARN,
    Kind.MISMATCH: Cure.MEND,
    Kind.DRIFT: Cure.LEARN,
}


@pytest.mark.parametrize("kind", FALL)
def test_planted_faults_are_named(kind):
    """200 runs of 2,000 rounds each, of which 95 % must be right: a row of the confusion matrix."""
    observed = [draw(kind, 2000, seed).observed() for seed in range(200)]
    for record in (RECORD, BARE):
        found = [diagnose(one, record) for one in observed]
        kinds = Counter(one.kind for one in found)
        assert kinds[kind] >= 190, kinds
        right = [one for one in found if one.kind is kind]
        assert all(one.cure is CURES[kind] and one.evidence is one.asked[kind] for one in right)
        assert all(one.evidence.is_alarm for one in right)
        assert all(abs(one.evidence.effect - FALL[kind]) < 6 * one.evidence.standard_error for one in right)


def test_healthy_drafts_raise_no_alarm():
    observed = [draw(Kind.HEALTHY, 2000, seed).observed() for seed in range(100)]
    for record in (RECORD, BARE):
        assert Counter(diagnose(one, record).kind for one in observed) == {Kind.HEALTHY: 100}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_trifle_is_no_fault_however_many_rounds(sign):
    off = tuple(RATES + sign * 0.01)
    found = diagnose(draw(Kind.HEALTHY, 200_000, 1).observed(), AcceptanceRecord(acceptance=off, confidence=off))
    assert found.kind is Kind.HEALTHY and found.cure is Cure.NOTHING and found.rounds == 200_000
    assert sign * found.asked[Kind.UNIFORM].z > 4  # so it is the effect's size that keeps it silent


def test_a_large_effect_of_few_guesses_is_no_fault():
    def alarms(rounds):
        found = [diagnose(draw(Kind.LONG_RANGE, rounds, seed, fall=0.07).observed(), RECORD) for seed in range(10)]
        assert np.mean([one.asked[Kind.LONG_RANGE].effect for one in found]) == pytest.approx(0.07, abs=0.025)
        return sum(one.asked[Kind.LONG_RANGE].is_alarm for one in found)

    assert alarms(600) <= 4 and alarms(20_000) == 10


def test_few_rounds_say_how_many_are_wanted(monkeypatch):
    none = diagnose(Observed(), RECORD)
    assert (none.kind, none.cure, none.evidence, none.wanted_rounds) == (Kind.UNKNOWN, Cure.NOTHING, None, 500)
    few = diagnose(draw(Kind.MISMATCH, 300, 0).observed(), RECORD)
    assert (few.kind, few.wanted_rounds) == (Kind.UNKNOWN, 500) and "500" in few.sentence
    monkeypatch.setattr(rules, "_SHORTFALL", 0.01)
    small = diagnose(draw(Kind.HEALTHY, 2000, 0).observed(), RECORD)
    assert small.kind is Kind.UNKNOWN and small.evidence.power < 0.9
    enough = diagnose(draw(Kind.HEALTHY, int(1.1 * small.wanted_rounds), 0).observed(), RECORD)
    assert enough.kind is Kind.HEALTHY and enough.evidence.power >= 0.9 and enough.wanted_rounds == 0
    assert 2000 < small.wanted_rounds < 20_000


def test_power_is_what_comes_true(monkeypatch):
    """Of a fault of twice the threshold, at a number of rounds where it is found about as often as not."""
    monkeypatch.setattr(rules, "_SHORTFALL", 0.03)
    found = [diagnose(draw(Kind.UNIFORM, 300, seed, fall=0.06).observed(), BARE) for seed in range(400)]
    alarms = np.mean([one.asked[Kind.UNIFORM].is_alarm for one in found])
    said = np.mean([one.asked[Kind.UNIFORM].power for one in found])
    assert 0.2 < said < 0.8 and abs(alarms - said) < 0.1


def test_without_a_record_a_change_and_a_mismatch_are_found():
    for kind in (Kind.DRIFT, Kind.MISMATCH, Kind.HEALTHY):
        found = Counter(diagnose(draw(kind, 2000, seed).observed()).kind for seed in range(50))
        assert found[kind] >= 48, found
    bare = draw(Kind.UNIFORM, 2000, 0).observed()
    bare.calibration = Observed().calibration
    found = diagnose(bare)
    assert (found.kind, found.wanted_rounds) == (Kind.UNKNOWN, 0) and "record" in found.sentence


def test_a_sure_draft_that_keeps_its_record_is_no_mismatch():
    rounds = draw(Kind.MISMATCH, 2000, 0)
    kept = AcceptanceRecord(acceptance=tuple(RATES - FALL[Kind.MISMATCH]))
    assert diagnose(rounds.observed(), kept).kind is Kind.HEALTHY
    sure = AcceptanceRecord(acceptance=kept.acceptance, confidence=tuple(RATES))
    assert diagnose(rounds.observed(), sure).kind is Kind.HEALTHY
    assert diagnose(rounds.observed()).kind is Kind.MISMATCH


def test_a_drift_says_since_when():
    since = [diagnose(draw(Kind.DRIFT, 4000, seed).observed(), RECORD).since for seed in range(20)]
    assert all(abs(at - 2000) <= 200 for at in since)
    assert diagnose(draw(Kind.UNIFORM, 4000, 0).observed(), RECORD).since is None


def test_a_rise_and_a_return_to_the_record_are_no_drift():
    easy, sound = draw(Kind.DRIFT, 2000, 0, fall=-0.1), draw(Kind.HEALTHY, 2000, 0)
    assert diagnose(easy.observed(), RECORD).kind is Kind.HEALTHY
    easier = draw(Kind.UNIFORM, 2000, 0, fall=-0.1)
    both = Rounds(
        accepted=np.concatenate([easier.accepted, sound.accepted]), sure=np.concatenate([easier.sure, sound.sure])
    )
    change = find_change(both.observed().blocks, RECORD.acceptance)
    assert change.z > 4 and change.after < 0.05
    assert diagnose(both.observed(), RECORD).kind is Kind.HEALTHY


def test_a_fall_behind_rounds_that_may_have_kept_the_record_is_a_drift():
    sound, worse = draw(Kind.HEALTHY, 1000, 0), draw(Kind.UNIFORM, 1000, 1, fall=0.3)
    both = Rounds(
        accepted=np.concatenate([sound.accepted, worse.accepted]), sure=np.concatenate([sound.sure, worse.sure])
    )
    above = AcceptanceRecord(acceptance=tuple(RATES + 0.06))
    assert find_change(both.observed().blocks, above.acceptance).before > rules._SHORTFALL
    assert diagnose(both.observed(), above).kind is Kind.DRIFT


def test_what_failed_from_the_beginning_is_no_drift():
    old, worse = draw(Kind.UNIFORM, 2000, 0, fall=0.1), draw(Kind.UNIFORM, 2000, 1, fall=0.25)
    both = Rounds(accepted=np.concatenate([old.accepted, worse.accepted]), sure=np.concatenate([old.sure, worse.sure]))
    assert diagnose(both.observed(), RECORD).kind is Kind.UNIFORM


def texts(seed, rounds, spread):
    """Healthy rounds in texts of 50, some of which are easier than others."""
    rng = np.random.default_rng(seed)
    ease = np.repeat(rng.normal(0, spread, rounds // 50), 50)[:, None]
    right = rng.random((rounds, len(RATES))) < np.clip(RATES + ease, 0.02, 0.98)
    return Rounds(accepted=right.cumprod(1).sum(1), sure=np.tile(RATES, (rounds, 1)))


@pytest.mark.parametrize(("rounds", "spread", "most"), [(2000, 0.0, 2), (12_800, 0.0, 2), (2000, 0.045, 10)])
def test_the_false_alarm_rate_of_a_change_is_what_is_stated(rounds, spread, most):
    """At most so many of 1,000 exceed 4 standard errors, with no threshold of the effect's size to help."""
    drawn = 500 if rounds == 2000 else 100
    changes = [find_change(texts(seed, rounds, spread).observed().blocks, RECORD.acceptance) for seed in range(drawn)]
    assert sum(one.z > 4 for one in changes) <= most * drawn / 1000
    if spread:  # the power of this check: without the dispersion, alarms would be common
        assert np.mean([one.dispersion for one in changes]) > 1.5
        assert sum(one.z * one.dispersion**0.5 > 4 for one in changes) > 5 * most * drawn / 1000
    else:
        assert sum(one.z > 2 for one in changes) > drawn / 20


def test_deeper_guesses_are_no_change():
    rounds = draw(Kind.HEALTHY, 4000, 0)
    steep = np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    right = np.random.default_rng(0).random(rounds.sure.shape) < steep
    accepted = right.cumprod(1).sum(1)
    shallow = Rounds(accepted=np.minimum(accepted[:2000], 1), sure=rounds.sure[:2000, :1]).observed()
    deep = Rounds(accepted=accepted[2000:], sure=rounds.sure[2000:]).observed()
    for rates in (tuple(steep), (shallow.joined(deep)).whole.acceptance):
        assert abs(find_change(shallow.blocks + deep.blocks, rates).z) < 4
    change = find_change(shallow.blocks + deep.blocks, (0.7,) * 8)
    assert change.z > 4  # with the same rate at all positions it would be one


def test_the_records_own_errors_count():
    few = AcceptanceRecord.of(draw(Kind.HEALTHY, 300, 5).observed())
    many = AcceptanceRecord.of(draw(Kind.HEALTHY, 30_000, 5).observed())
    found = draw(Kind.UNIFORM, 2000, 6, fall=0.08).observed()
    wide, narrow = (diagnose(found, one).asked[Kind.UNIFORM].standard_error for one in (few, many))
    assert wide > 2 * narrow
    assert few.confidence is not None and abs(many.confidence[0] - RATES[0]) < 0.01


def test_shapes_that_a_shallow_guess_cannot_tell_are_not_asked(monkeypatch):
    rounds = draw(Kind.HEALTHY, 2000, 0)
    shallow = Rounds(accepted=np.minimum(rounds.accepted, 3), sure=rounds.sure[:, :3])
    assert set(diagnose(shallow.observed(), RECORD).asked) == {Kind.DRIFT, Kind.MISMATCH, Kind.UNIFORM}
    at_five = Rounds(accepted=np.minimum(rounds.accepted, 5), sure=rounds.sure[:, :5])
    assert Kind.LONG_RANGE not in diagnose(at_five.observed(), RECORD).asked
    monkeypatch.setattr(rules, "_EARLY", 1)
    monkeypatch.setattr(rules, "_LATE", 4)
    other = diagnose(at_five.observed(), RECORD)
    assert {Kind.ANCHOR, Kind.LONG_RANGE} <= set(other.asked)


def test_evidence_needs_size_and_certainty():
    def alarm(effect, error):
        return Evidence(effect=effect, standard_error=error, threshold=0.05).is_alarm

    assert alarm(0.06, 0.01) and not alarm(0.04, 0.001) and not alarm(0.06, 0.02)


def test_what_is_no_record_is_refused():
    for record in ({"acceptance": ()}, {"acceptance": (1.5,)}, {"acceptance": (0.5,), "confidence": (0.5, 0.5)}):
        with pytest.raises(ConfigError):
            AcceptanceRecord(**record)


def test_a_modest_draft_that_falls_is_no_mismatch():
    """Its own probability was far below acceptance, and stays so: nothing says that it is wired wrongly."""
    modest = AcceptanceRecord(acceptance=tuple(RATES.tolist()), confidence=(0.1,) * len(RATES))
    rounds = draw(Kind.UNIFORM, 2000, 3, fall=0.3)
    found = diagnose(Rounds(accepted=rounds.accepted, sure=np.full_like(rounds.sure, 0.1)).observed(), modest)
    assert found.kind is Kind.UNIFORM and not found.asked[Kind.MISMATCH].is_alarm


def test_a_drift_is_asked_before_a_mismatch(monkeypatch):
    """Own probability stays where it was, so both are far off; what held its record once was wired rightly."""
    monkeypatch.setattr(rules, "_OVERCONFIDENCE", 0.1)
    found = diagnose(draw(Kind.DRIFT, 4000, 5, fall=0.5).observed(), RECORD)
    assert found.asked[Kind.MISMATCH].is_alarm and found.kind is Kind.DRIFT
