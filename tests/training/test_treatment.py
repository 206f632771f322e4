"""A diagnosis triggers its cure: which depths are weighted, what trains nothing and says so, and when it is asked."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft import zoo
from outdraft.adapt.kinds import Cure, Kind
from outdraft.adapt.learning import Learning
from outdraft.adapt.observe import Observed
from outdraft.adapt.room import SHARED, AdaptRoom, Pair
from outdraft.adapt.spool import SpoolWriter
from outdraft.core.learner_registry import find_learner
from outdraft.options.errors import ConfigError
from outdraft.training import live_learner
from outdraft.training.computing import open_target
from outdraft.training.lessons import Teacher
from outdraft.training.live import LiveDraft
from outdraft.training.live_learner import LiveLearner
from outdraft.training.served import ServedRequest
from outdraft.training.specimens import take_specimen
from tests.adapt.planted import RATES, draw

TARGET = zoo.path("target")
LEARN = {
    "lr": 1e-3,
    "muon_lr": 1e-3,
    "step_tokens": 64,
    "held_out": 0.0,
    "window": 8,
    "depth": 3,
    "epochs": 1.0,
    "trained": 0.0,
}
IDS = torch.randint(4, 4000, (65,), generator=torch.Generator().manual_seed(0)).tolist()


def requests(count, prompt=24):
    """All different."""
    ids = torch.randint(5, 4000, (count, prompt + 24), generator=torch.Generator().manual_seed(0)).tolist()
    return [ServedRequest(prompt=tuple(one[:prompt]), answer=tuple(one[prompt:])) for one in ids]


@pytest.fixture(scope="module")
def specimen():
    """Of the sound head."""
    target, method = open_target(TARGET, "auto", "cpu")[0], find_learner("eagle3")
    learner = method.load(method.options(), target, zoo.path("eagle3"))
    return take_specimen(learner, Teacher(target, learner.taps), zoo.path("eagle3"), IDS).data()


@pytest.fixture
def room(tmp_path, specimen, monkeypatch):
    """A room whose draft has the record's rates; of a head that is spoiled by `spoil`."""
    monkeypatch.setattr(live_learner, "_REST", 0.0)

    def made(spoil=lambda head, record: None, first=1 << 20, **learn):
        head = shutil.copytree(zoo.path("eagle3"), tmp_path / "head", dirs_exist_ok=True)
        record = json.loads((head / "training.json").read_text())
        record["promises"][-1]["conditional"] = list(RATES)
        record["specimen"] = json.loads(json.dumps(specimen))
        spoil(head, record)
        (head / "training.json").write_text(json.dumps(record))
        options = {"learn": {**LEARN, **learn}, "first": first}
        return AdaptRoom.open(tmp_path / "room", Pair(target=TARGET, draft=head), options)

    return made


def forget_norm(head, record):
    weights = load_file(head / "model.safetensors")
    save_file({**weights, "norm.weight": torch.ones_like(weights["norm.weight"])}, head / "model.safetensors")


def round_target(head, record):
    record["specimen"]["target"] = [one + 0.4 for one in record["specimen"]["target"]]


def observe(room, kind, version=0):
    examined = draw(kind, 4000, 0).observed().data()
    (room.path / "observed.json").write_text(json.dumps({"version": version, "examined": examined}))


def serve(room, several, name=SHARED):
    room.tenant(name).begin()
    spool = SpoolWriter(room.tenant(name).requests, num_kept=2000, seconds=3600)
    for one in several:
        spool.put({"prompt_token_ids": one.prompt, "token_ids": one.answer})
    spool.close()


def learn(room, turns=2, name=SHARED):
    learner = LiveLearner(room)
    for _ in range(turns):
        learner._turn(name)
    return learner._pupils[name].live


def weights(live):
    """Of the guesses of a step, depth by depth, against what the learner itself says of them."""
    rows = live._rows(requests(1))
    lesson = live.teacher.lesson(rows)
    own = live.learner.look(lesson).guesses
    return [a.weight / b.weight for a, b in zip(live._objective._look(lesson).guesses, own, strict=True)]


def diagnosed(room, name=SHARED):
    return [one for one in room.tenant(name).ledger() if one["what"] == "diagnosed"]


@pytest.mark.parametrize(
    ("kind", "cure", "expected", "window"),
    [
        (Kind.ANCHOR, Cure.LEARN_EARLY, [1, 1 / 2, 1 / 4, 1 / 8], 8),
        (Kind.LONG_RANGE, Cure.LEARN_LATE, [1, 2, 4, 8], 16),
        (Kind.UNIFORM, Cure.LEARN, [1, 1, 1, 1], 8),
        (Kind.DRIFT, Cure.LEARN, [1, 1, 1, 1], 8),
        (Kind.HEALTHY, Cure.NOTHING, [1, 1, 1, 1], 8),
    ],
)
def test_rates_that_were_observed_choose_the_weights(room, kind, cure, expected, window):
    made = room()
    observe(made, kind)
    serve(made, requests(8))
    live = learn(made)
    assert live.num_steps > 0 and weights(live) == expected
    one = requests(1)[0]
    assert live.length(one) == window + 24 and live._rows([one]).ids.shape == (1, window + 24)
    read, lesson = [], live.teacher.lesson
    live.teacher.lesson = lambda rows: (read.append(rows.ids.shape[1]), lesson(rows))[1]
    live.judge([one], (live.serving,))
    assert read == [window + 24], "judged as it is learned"
    told = diagnosed(made)
    assert [(one["kind"], one["cure"]) for one in told] == ([] if kind is Kind.HEALTHY else [(kind, cure)])
    learn(made)
    assert len(diagnosed(made)) == len(told), "it says so once"


def test_the_ledger_has_a_line_for_each_change(room):
    made = room()
    serve(made, requests(8))
    for kind in (Kind.ANCHOR, Kind.UNIFORM, Kind.UNIFORM, Kind.ANCHOR, Kind.HEALTHY, Kind.HEALTHY):
        observe(made, kind)
        learn(made, turns=1)
    assert [one["kind"] for one in diagnosed(made)] == [Kind.ANCHOR, Kind.UNIFORM, Kind.ANCHOR, Kind.HEALTHY]


def test_early_weights_change_what_is_learned():
    target = open_target(TARGET, "float32", "cpu")
    lives = [
        LiveDraft(target, zoo.path("eagle3"), Learning(**{**LEARN, "weigh": one})) for one in ("early", "even", "auto")
    ]
    early, even, auto = ([one.step(requests(4)), one.weights()] for one in lives)
    assert early[0] != even[0] == auto[0]
    assert any(not torch.equal(one, even[1][name]) for name, one in early[1].items())
    assert all(torch.equal(one, even[1][name]) for name, one in auto[1].items())


@pytest.mark.parametrize(
    ("spoil", "kind", "word"),
    [(forget_norm, Kind.MISMATCH, "norm.weight"), (round_target, Kind.QUANTIZATION, "weigh=even")],
)
def test_what_learning_would_not_cure_trains_nothing_and_says_so(room, spoil, kind, word):
    made = room(spoil, epochs=3.0)
    serve(made, requests(8))
    for _ in range(2):
        live = learn(made, turns=4)
        assert live.num_steps == 0 == live.num_waiting and len(live._earlier) == 8
        assert all(torch.equal(one, live.serving[name]) for name, one in live.weights().items())
    (told,) = diagnosed(made)
    assert told["kind"] == kind and told["cure"] == Cure.MEND and word in told["reason"]
    assert made.tenant(SHARED).version == 0


@pytest.mark.parametrize("spoil", [forget_norm, round_target])
def test_an_operator_who_says_how_to_learn_is_obeyed(room, spoil):
    made = room(spoil, weigh="early")
    observe(made, Kind.LONG_RANGE)
    serve(made, requests(8))
    live = learn(made)
    assert live.num_steps > 0 and weights(live)[1] == 0.5 and not diagnosed(made)


def test_another_template_trains_nothing_until_prompts_have_it_again(room):
    made = room(lambda head, record: record.update(marks=[7]), first=700)
    serve(made, requests(28))
    learner = LiveLearner(made)
    for _ in range(7):
        learner._turn(SHARED)
    live = learner._pupils[SHARED].live
    assert live.cure is Cure.MEND and "chat template" in diagnosed(made)[-1]["reason"]
    learned = live.num_steps
    serve(made, [ServedRequest(prompt=(*one.prompt, 7), answer=one.answer) for one in requests(80)])
    for _ in range(5):
        learner._turn(SHARED)
    assert live.cure is Cure.MEND and live.num_steps == learned > 0
    for _ in range(15):
        learner._turn(SHARED)
    assert live.cure is Cure.NOTHING and live.num_steps > learned
    assert [one["kind"] for one in diagnosed(made)] == [Kind.TEMPLATE, Kind.UNKNOWN]


def test_a_run_that_has_begun_goes_on_as_it_began(room):
    made = room(first=512, held_out=0.25)
    serve(made, requests(8))
    learner = LiveLearner(made)
    learner._turn(SHARED)
    live = learner._pupils[SHARED].live
    observe(made, Kind.ANCHOR)
    learner._turn(SHARED)
    assert live.num_steps > 0 and live.cure is Cure.NOTHING
    serve(made, requests(60))
    while live.cure is Cure.NOTHING:
        assert not [one for one in made.tenant(SHARED).ledger() if one["what"] == "tried"]
        assert learner._turn(SHARED)
    assert live.cure is Cure.LEARN_EARLY and live.num_tokens >= 512
    assert [one["what"] for one in made.tenant(SHARED).ledger()][:2] == ["tried", "diagnosed"]


@pytest.mark.parametrize(
    ("turn", "begins"),
    [(one, True) for one in ("tried", "passed", "failed", "rolled back")]
    + [(one, False) for one in ("watched", "kept", "undecided")],
)
def test_which_turns_begin_a_run(room, turn, begins):
    made = room()
    observe(made, Kind.ANCHOR)
    serve(made, requests(8))
    learner = LiveLearner(made)
    learner._turn(SHARED)
    pupil = learner._pupils[SHARED]
    observe(made, Kind.UNIFORM)  # of version 0; of the one that passed nothing is known
    pupil._tell(turn, pupil.live.serving, 1, "")
    expected = Cure.LEARN_EARLY if not begins else Cure.NOTHING if turn == "passed" else Cure.LEARN
    assert pupil.live.cure is expected


def test_a_run_that_may_not_go_on_leaves_what_waits(room):
    live = LiveDraft(open_target(TARGET, "float32", "cpu"), zoo.path("eagle3"), Learning(**LEARN))
    for one in requests(3):
        live.add(one)
    assert live.num_waiting == 3 * 32
    live.treat(Cure.MEND)
    assert live.num_waiting == 0 and len(live._earlier) == 3
    assert not live.add(requests(4)[3]) and live.num_waiting == 0 and len(live._earlier) == 4


def test_rounds_of_another_version_or_of_others_say_nothing(room):
    made = room()
    observe(made, Kind.ANCHOR, version=2)
    serve(made, requests(8))
    assert learn(made).cure is Cure.NOTHING
    observe(made, Kind.ANCHOR)
    serve(made, requests(8), "a" * 16)
    assert learn(made, name="a" * 16).cure is Cure.NOTHING and not diagnosed(made, "a" * 16)
    (made.path / "observed.json").write_text('{"version": 0, "examined": {"blocks": [{}], "block": "x"}}')
    assert learn(made).cure is Cure.NOTHING
    (made.path / "observed.json").write_text("[]")
    assert learn(made).cure is Cure.NOTHING


def test_a_version_that_is_pointed_to_begins_a_run(room):
    made = room()
    serve(made, requests(8))
    learner = LiveLearner(made)
    learner._turn(SHARED)
    version = made.tenant(SHARED).publish(lambda place: shutil.copytree(made.pair.draft, place, dirs_exist_ok=True))
    observe(made, Kind.ANCHOR, version=version)
    learner._turn(SHARED)
    assert learner._pupils[SHARED].live.cure is Cure.LEARN_EARLY


def test_how_much_of_a_prompt_is_kept_and_which_word_is_none():
    kept = {one: Learning(window=8, weigh=one).longest_window for one in ("auto", "late", "early", "even")}
    assert kept == {"auto": 16, "late": 16, "early": 8, "even": 8}
    assert [Learning(weigh=one).cure for one in kept] == [Cure.LEARN, Cure.LEARN_LATE, Cure.LEARN_EARLY, Cure.LEARN]
    with pytest.raises(ConfigError, match="weigh='lat' must be"):
        Learning(weigh="lat")


def test_what_was_observed_is_the_same_when_it_was_read():
    seen = draw(Kind.MISMATCH, 4000, 0).observed()
    again = Observed.of(json.loads(json.dumps(seen.data())))
    assert (again.whole, again.calibration, again.block) == (seen.whole, seen.calibration, seen.block)
