"""What a specimen or the prompts show comes before what acceptance shows, and a sound specimen silences a mismatch."""

import pytest
from adapt.planted import BARE, draw

from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.evidence import Evidence
from outdraft.adapt.kinds import CURES, Finding, Kind


def finding(kind, effect):
    evidence = Evidence(effect=effect, standard_error=0.015, threshold=0.06)
    return Finding(kind=kind, evidence=evidence, sentence=f"{kind} it is", part="taps")


@pytest.mark.parametrize(
    ("rounds", "shown", "called"),
    [
        (Kind.DRIFT, (Kind.MISMATCH,), Kind.MISMATCH),
        (Kind.DRIFT, (Kind.TEMPLATE,), Kind.TEMPLATE),
        (Kind.DRIFT, (Kind.QUANTIZATION,), Kind.DRIFT),
        (Kind.UNIFORM, (Kind.QUANTIZATION,), Kind.QUANTIZATION),
        (Kind.HEALTHY, (Kind.TEMPLATE, Kind.MISMATCH, Kind.TARGET), Kind.TARGET),
    ],
)
def test_the_order(rounds, shown, called):
    found = diagnose(draw(rounds, 4000, 0).observed(), BARE, findings=[finding(kind, 0.5) for kind in shown])
    assert found.kind is called and found.cure is CURES[called]
    assert found.sentence == f"{called} it is" or called is Kind.DRIFT
    assert set(shown) <= found.asked.keys() and found.asked[rounds if rounds in found.asked else called].is_alarm


def test_a_sound_specimen_silences_a_mismatch_by_acceptance():
    seen = draw(Kind.MISMATCH, 4000, 0).observed()
    assert diagnose(seen, BARE).kind is Kind.MISMATCH
    sound = diagnose(seen, BARE, findings=[finding(Kind.MISMATCH, 0.0)])
    assert sound.kind is Kind.UNIFORM and sound.part == ""
    assert sound.asked[Kind.MISMATCH].effect == 0.0
