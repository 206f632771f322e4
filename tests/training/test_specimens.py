"""A specimen of the zoo's EAGLE-3 head finds what was planted, names the part, and is silent about a sound pair."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft import zoo
from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.kinds import Cure, Kind
from outdraft.adapt.learning import Learning
from outdraft.adapt.observe import Observed
from outdraft.adapt.specimen import Specimen, compare, gap
from outdraft.core.learner import TargetLearner
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.models.files.load import load_model
from outdraft.models.networks.base import initialise
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.testing.tiny import tiny_model
from outdraft.training.check import compare_specimen
from outdraft.training.computing import open_target
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.lessons import Teacher
from outdraft.training.live import LiveDraft
from outdraft.training.record import read_record
from outdraft.training.served import ServedRequest
from outdraft.training.specimens import known_signs, marks_of, specimen_ids, take_specimen

TARGET = zoo.path("target")
IDS = torch.randint(4, 4000, (65,), generator=torch.Generator().manual_seed(0)).tolist()


def take(head, target=None):
    target = open_target(TARGET, "auto", "cpu")[0] if target is None else target
    method = find_learner("eagle3")
    learner = method.load(method.options(), target, head)
    return take_specimen(learner, Teacher(target, learner.taps), head, IDS)


@pytest.fixture(scope="module")
def known():
    return take(zoo.path("eagle3"))


@pytest.fixture
def planted(tmp_path):
    """A copy of the head with its config or its weights edited."""

    def copy(edit=lambda config, weights: None):
        head = shutil.copytree(zoo.path("eagle3"), tmp_path / "head")
        config, weights = json.loads((head / "config.json").read_text()), load_file(head / "model.safetensors")
        edit(config, weights)
        (head / "config.json").write_text(json.dumps(config))
        save_file(weights, head / "model.safetensors")
        return head

    return copy


def shift_taps(config, weights):
    config["eagle_aux_hidden_state_layer_ids"] = [2, 4, 6]
    del config["eagle_config"]


def shift_one_tap(config, weights):
    config["eagle_aux_hidden_state_layer_ids"] = [1, 4, 5]
    del config["eagle_config"]


def forget_norm(config, weights):
    weights["norm.weight"] = torch.ones_like(weights["norm.weight"])


def forget_output_norm(config, weights):
    config["norm_output"] = False


def undo_training(config, weights):
    dice = torch.Generator().manual_seed(0)
    for name, one in weights.items():
        if one.dim() == 2:
            noise = torch.randn(one.shape, generator=dice) * one.float().std()
            weights[name] = (0.9 * one.float() + 0.1 * noise).to(one.dtype)


@pytest.mark.parametrize(
    ("edit", "part", "word"),
    [
        (shift_taps, "taps", "after layers 2, 4, 6, and learned to after 1, 3, 5"),
        (shift_one_tap, "taps", "after layers 1, 4, 5"),
        (forget_norm, "weights", "1 of 16 tensors are not the record's (norm.weight)"),
        (undo_training, "weights", "9 of 16 tensors"),
        (forget_output_norm, "config", "config.json is not the record's"),
    ],
)
def test_wrong_wiring_is_found_and_named(known, planted, edit, part, word):
    target, draft = compare(known, take(planted(edit)))
    assert not target.evidence.is_alarm and draft.evidence.is_alarm
    assert draft.evidence.power > 0.99
    found = diagnose(Observed(), findings=[target, draft])
    assert (found.kind, found.part, found.cure) == (Kind.MISMATCH, part, Cure.MEND)
    assert word in found.sentence and found.evidence is draft.evidence


def test_a_sound_pair_is_not_suspected(known, planted):
    for other in (take(planted()), take(zoo.path("eagle3"), open_target(TARGET, "bfloat16", "cpu")[0])):
        assert not any(one.evidence.is_alarm for one in compare(known, other))
        assert all(one.evidence.effect < one.evidence.threshold / 3 for one in compare(known, other))
    assert Specimen.of(json.loads(json.dumps(known.data()))) == known


def test_code_that_computes_otherwise_is_found(known, planted, monkeypatch):
    carry = FusedNet.carry
    monkeypatch.setattr(FusedNet, "carry", lambda self, g: 2 * carry(self, g))
    draft = compare(known, take(planted()))[1]
    assert draft.evidence.is_alarm and draft.part == "code"


def test_another_quantization_and_another_target(known, tmp_path):
    whole = load_model(TARGET, "float32")
    rounded = quantize_decoder(whole, QuantConfig(bits=4, group_size=64))
    target, draft = compare(known, take(zoo.path("eagle3"), rounded))
    assert target.kind is Kind.QUANTIZATION and target.evidence.is_alarm and not draft.evidence.is_alarm
    assert diagnose(Observed(), findings=[target, draft]).cure is Cure.MEND
    stranger = initialise(whole, 1, std=0.3)
    target, draft = compare(known, take(zoo.path("eagle3"), stranger))
    found = diagnose(Observed(), findings=[target, draft])
    assert found.kind is Kind.TARGET and "another model" in found.sentence


def test_a_token_that_only_one_of_both_can_say_is_a_gap():
    assert gap((-1.0, None, None), (-1.0, None, -2.0)) == 2.5
    assert gap((-1.0, -1.0), (-1.5, -90.0)) == 2.75
    assert gap((None,), (None,)) == 0


def test_a_record_that_is_damaged_is_refused(known):
    with pytest.raises(ValueError, match="65 ids has 64 numbers"):
        Specimen.of({**known.data(), "target": [0.0]})


def test_what_was_learned_has_a_specimen_of_its_own(known, planted, tmp_path):
    head = planted()
    record = json.loads((head / "training.json").read_text())
    (head / "training.json").write_text(json.dumps({**record, "specimen": known.data(), "marks": [7]}))
    assert not any(one.evidence.is_alarm for one in compare_specimen(head, str(TARGET)))
    settings = Learning(lr=0.01, muon_lr=0.01, step_tokens=64, held_out=0.0)
    live = LiveDraft(open_target(TARGET, "auto", "cpu"), head, settings)
    assert len(live.findings()) == 2 and not any(one.evidence.is_alarm for one in live.findings())
    live.add(ServedRequest(prompt=(5, 6), answer=tuple(IDS)))
    for _ in range(3):
        live.learn()
    live.write(live.weights(), tmp_path / "new")
    found = read_record(tmp_path / "new")
    assert found.marks == (7,) and found.specimen != known
    assert not any(one.evidence.is_alarm for one in compare_specimen(tmp_path / "new", str(TARGET)))
    draft = compare(known, found.specimen)[1]
    assert draft.evidence.is_alarm and draft.part == "weights"


@pytest.mark.parametrize("kind", learner_names())
def test_every_kind_says_the_same_after_it_was_saved(kind, tmp_path):
    target = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32, exact=False)
    method = find_learner(kind)
    learner = method.new(method.options(), target, 0)
    learner.save(tmp_path)
    if isinstance(learner, TargetLearner):
        assert known_signs(learner, Teacher(target, learner.taps), tmp_path, corpus())["specimen"] is None
        return
    then = Specimen.of(known_signs(learner, Teacher(target, learner.taps), tmp_path, corpus())["specimen"])
    again = method.load(method.options(), target, tmp_path)
    now = take_specimen(again, Teacher(target, again.taps), tmp_path, then.ids)
    assert now.tensors == then.tensors and len(then.draft) in (1, 2)
    assert gap(then.target, now.target) < 0.001 and any(map(any, then.draft))
    assert not any(one.evidence.is_alarm for one in compare(then, now))


def corpus():
    """Two chats of a prompt and an answer, of which the second is the longer."""
    ids = torch.randint(1, 31, (40,), generator=torch.Generator().manual_seed(0)).numpy()
    ids[10:13] = ids[22:25] = 7, 8, 9
    counts = np.zeros(40, bool)
    counts[13:17] = counts[25:40] = True
    return TrainingCorpus(ids=ids.astype(np.int32), counts=counts, starts=np.array([0, 17, 40]))


def test_a_specimen_is_of_the_longest_example_and_marks_of_all():
    assert specimen_ids(corpus()) == corpus().ids[17:40].tolist()
    assert marks_of(corpus()) == (7, 8, 9)


def test_a_record_without_a_specimen_says_nothing():
    assert compare_specimen(zoo.path("eagle"), str(TARGET)) == []
