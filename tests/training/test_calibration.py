"""A calibration counted in the engine, stored beside the draft, and taken as the start of the policy's map.

The planted draft is the target with logits three times as wide: it is right as often as it can be, and far too sure.
"""

import json
import random
from dataclasses import replace

import pytest
import torch
from control.test_calibrated import planted
from control.world import sequence

from outdraft.cli.main import main
from outdraft.control.calibrated import CalibratedOptions, build
from outdraft.control.shared.reliability import FILE, UNFITTED, CalibrationFile, Reliability, Share, read_calibration
from outdraft.core.policy import Arm
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.answers import Asking
from outdraft.training.calibration import calibration_error, counted, measure_calibration
from outdraft.training.record import fingerprint
from outdraft.weights.digest import digest_weights

VOCAB = 31
ASKING = Asking(temperatures=(1.0,), max_tokens=24, prompt_tokens=4)


def test_the_error_by_hand():
    pairs = [(0.9, True), (0.9, False), (0.1, False), (0.1, False)]
    assert calibration_error(pairs) == pytest.approx((abs(1.8 - 1) + abs(0.2 - 0)) / 4)
    assert calibration_error(pairs, counted(pairs * 1000).fit()) < 0.01
    assert calibration_error([]) == 0


def test_a_stored_map_is_as_good_on_tokens_not_seen_as_one_that_was_fitted_there(tmp_path):
    dice = random.Random(0)
    whole = counted([planted(dice) for _ in range(4000)])
    CalibrationFile(draft="a", temperatures=(1.0,), shares=whole.shares).write(tmp_path / FILE)
    fresh = [planted(dice) for _ in range(2000)]
    start = Reliability(2000, read_calibration(tmp_path / FILE).shares)
    assert calibration_error(fresh) > 0.12
    assert calibration_error(fresh, start.fit()) < 0.035
    told = {round(one.said, 9): one.found for one in whole.shares}
    assert all(one.found == pytest.approx(told[round(one.said, 9)]) for one in start.shares)
    assert sum(one.tokens for one in start.shares) == pytest.approx(2000)  # no more than the memory holds
    for _ in range(20_000):  # and what it began with is forgotten
        start.add(0.9, False)
    assert start.fit()(0.9) < 0.01


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    place = tmp_path_factory.mktemp("calibration")
    target = tiny_model(vocab=VOCAB, layers=1, seed=1, dtype=torch.float32, exact=False)
    save_model(target, place / "target")
    known = fingerprint(target)
    target.lm_head.weight.mul_(3)
    save_model(target, place / "draft")
    record = {"kind": "draft_model", "dtype": "float32", "target": known, "promises": []}
    (place / "draft/training.json").write_text(json.dumps(record))
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(VOCAB, (60, 8), generator=generator).tolist()
    (place / "texts.jsonl").write_text("".join(json.dumps({"token_ids": ids}) + "\n" for ids in texts))
    return place


def test_a_draft_that_is_too_sure_is_found_out_and_its_policy_begins_with_the_map(scene):
    found = measure_calibration(scene / "draft", str(scene / "target"), [str(scene / "texts.jsonl")], ASKING)
    assert found.judged > 500 and found.before > 0.15 and found.after < 0.6 * found.before, found
    told = read_calibration(scene / "draft" / FILE)
    assert told.draft == digest_weights(scene / "draft") and told.temperatures == (1.0,)
    assert sum(one.tokens for one in told.shares) == pytest.approx(found.judged)
    again = measure_calibration(scene / "draft", str(scene / "target"), [str(scene / "texts.jsonl")], ASKING)
    assert again == found and read_calibration(scene / "draft" / FILE) == told
    arm = Arm(name="a", home=scene / "draft")
    (budget,) = build(CalibratedOptions(), [arm]).plan([sequence()])
    assert budget.chance(0.99) < 0.9  # what it says of a token that it is sure of
    for options, whose in (({"learned": "none"}, arm), ({}, replace(arm, home=scene / "target")), ({}, Arm(name="b"))):
        (bare,) = build(CalibratedOptions(**options), [whose]).plan([sequence()])
        assert bare.calibration is UNFITTED
    (named,) = build(CalibratedOptions(learned=str(scene / "draft" / FILE)), [Arm(name="b")]).plan([sequence()])
    assert named.calibration == budget.calibration
    with pytest.raises(ConfigError, match="other weights"):
        build(CalibratedOptions(learned=str(scene / "draft" / FILE)), [replace(arm, home=scene / "target")])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no calibration"),
        ('{"draft": "a", "temperatures": [1]}', "no calibration"),
        ('{"draft": "a", "temperatures": [1], "bins": [[2, 0.5, 3]]}', "holds the bin"),
        ('{"draft": "a", "temperatures": [1], "bins": [[0.2, 0.5, NaN]]}', "holds the bin"),
        (None, "cannot be read"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, text, says):
    path = tmp_path / "map.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        build(CalibratedOptions(learned=str(path)), [Arm(name="a")])


def test_texts_of_nothing_and_what_was_not_trained_are_refused(scene, tmp_path):
    with pytest.raises(ConfigError, match="--data FILE"):
        measure_calibration(scene / "draft", str(scene / "target"), [], ASKING)
    with pytest.raises(ConfigError, match="was not trained"):
        measure_calibration(tmp_path, str(scene / "target"), [str(scene / "texts.jsonl")], ASKING)
    (tmp_path / "short.jsonl").write_text('{"token_ids": [3, 4]}\n')
    with pytest.raises(ConfigError, match="no token was drafted"):
        measure_calibration(
            scene / "draft", str(scene / "target"), [str(tmp_path / "short.jsonl")], replace(ASKING, max_tokens=1)
        )


def test_shares_are_of_bins():
    made = counted([(0.5, True), (0.5, False), (0.99, True)])
    assert [tuple(one) for one in made.shares] == [pytest.approx((0.5, 0.5, 2)), pytest.approx((0.99, 1.0, 1))]
    assert Reliability(100, [Share(0.5, 0.25, 8)]).shares == (Share(0.5, 0.25, 8),)


def test_the_command_says_how_far_off_it_was(scene, capsys):
    words = ["train", "calibration", scene / "draft", "--target", scene / "target", "--data", scene / "texts.jsonl"]
    assert main([*map(str, words), "--max-tokens", "24", "--prompt-tokens", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"].endswith(FILE) and told["before"] > told["after"] > 0 and told["judged"] > 500
    assert main([*map(str, words), "--max-tokens", "9"]) == 0
    assert "expected calibration error" in capsys.readouterr().out
    assert main(["train", "calibration", str(scene / "draft"), "--nodes", "3"]) == 2
    assert "does not take" in capsys.readouterr().err
