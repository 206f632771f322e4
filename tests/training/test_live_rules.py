"""The rules of a learner beside a service, one by one; and a replay over a draft whose worth is known."""

from dataclasses import dataclass, field, replace
from math import nan

import pytest
import torch

from outdraft import zoo
from outdraft.adapt.gate import GateOptions
from outdraft.adapt.learning import Learning
from outdraft.options.errors import ConfigError
from outdraft.training.candidates import Candidates
from outdraft.training.computing import open_target
from outdraft.training.live import LiveDraft
from outdraft.training.live_replay import LiveReplay
from outdraft.training.served import ServedRequest

SETTINGS = Learning(
    lr=3e-3, muon_lr=5e-3, step_tokens=128, held_out=0.3, replay=0.5, trained=0.0, epochs=1.0, depth=3, share=0.75
)


def requests(count, domain="forms"):
    """Of 8 and 24 ids, all different."""
    ids = torch.randint(5, 4000, (count, 32), generator=torch.Generator().manual_seed(0)).tolist()
    return [ServedRequest(prompt=tuple(one[:8]), answer=tuple(one[8:]), domain=domain) for one in ids]


@pytest.fixture(scope="module")
def target():
    return open_target(zoo.path("target"), "float32", "cpu")


@pytest.fixture(scope="module")
def live(target):
    return LiveDraft(target, zoo.path("eagle3"), SETTINGS)


@pytest.fixture
def lessons(live, monkeypatch):
    """The rows that are read from now on."""
    seen, lesson = [], live.teacher.lesson
    monkeypatch.setattr(live.teacher, "lesson", lambda rows: (seen.append(rows), lesson(rows))[1])
    return seen


def prompts_in(rows):
    return [tuple(rows.ids[0][rows.documents[0] == d][:8].tolist()) for d in rows.documents[0].unique()]


def test_a_step_learns_answers_and_earlier_requests_in_their_share(live, lessons):
    given = requests(40)
    held = {one.prompt for one in given if live.add(one)}
    assert 0 < len(held) < 40
    assert all(live.add(replace(one, answer=one.answer[:9])) == (one.prompt in held) for one in given), "by the prompt"
    for _ in range(3):
        live.learn()
    by_answer = {one.prompt: one.answer for one in given}
    seen = set()
    for number, rows in enumerate(lessons):
        prompts = prompts_in(rows)
        again = sum(one in seen for one in prompts)
        assert again == (0 if number == 0 else len(prompts) // 2), "half of a step's rows, once there are some"
        seen.update(prompts)
        counted = rows.ids[0, 1:][rows.counts[0]].tolist()
        assert counted == [token for one in prompts for token in by_answer[one]], "no token of a prompt"
    assert not seen & held


def test_a_share_of_a_step_is_of_the_drafts_own_training(live, lessons, monkeypatch):
    own, given = requests(60)[50:], requests(40)
    monkeypatch.setattr(live, "_trained", own)
    monkeypatch.setattr(live, "settings", replace(SETTINGS, replay=0.25, trained=0.5))
    for one in given:
        live.add(one)
    assert live.fresh_share == 0.25
    for _ in range(4):
        live.learn()
    trained = {one.prompt for one in own}
    shares = [sum(one in trained for one in prompts) / len(prompts) for prompts in map(prompts_in, lessons)]
    assert shares == [0.5] * 4 and not any(map(live.knows, own))
    learned = {one for prompts in map(prompts_in, lessons) for one in prompts} - trained
    assert all(live.knows(one) == (one.prompt in learned) for one in given if one.prompt in learned)


def test_long_answers_of_its_training_leave_room_for_a_fresh_request(live, monkeypatch):
    """Else what waits would wait for ever."""
    own = [replace(one, answer=one.answer * 9) for one in requests(60)[50:]]
    monkeypatch.setattr(live, "_trained", own)
    monkeypatch.setattr(live, "settings", replace(SETTINGS, replay=0.25, trained=0.5))
    live._fresh.clear()
    for one in requests(8):
        live.add(one)
    waiting = live.num_waiting
    live.learn()
    assert live.num_waiting == waiting - 32


def test_judging_leaves_what_was_learned(live):
    live.step(requests(2))
    before = live.weights()
    first = live.judge(requests(3), (before, live.serving))
    assert all(torch.equal(one, before[name]) for name, one in live.weights().items())
    assert first[0] != first[1] and live.judge(requests(3), (before,))[0] == pytest.approx(first[0], abs=0.02)


def test_a_candidate_lies_on_the_way_from_where_learning_began(live):
    live.go_back()
    began = live.weights()
    live.step(requests(2))
    for name, one in live.candidate().items():
        assert torch.allclose(one, 0.25 * began[name] + 0.75 * live.weights()[name], atol=1e-6)
    reached, live.serving = live.weights(), live.candidate()
    live.go_back()  # a candidate that passed lies behind what was learned: from there it goes on
    assert all(torch.allclose(one, reached[name], atol=1e-5) for name, one in live.weights().items())
    for name, one in live.candidate().items():
        assert torch.allclose(one, live.serving[name], atol=1e-5), "nothing was learned since"
    live.serving = began
    live.go_back()
    assert all(torch.equal(one, began[name]) for name, one in live.weights().items())


def test_a_version_that_is_read_again_goes_on_from_what_had_been_learned(live, target, tmp_path):
    began = live.weights()
    live.step(requests(2))
    reached, taken = live.weights(), live.candidate()
    live.write(taken, tmp_path / "version")
    again = LiveDraft(target, tmp_path / "version", SETTINGS, begun=zoo.path("eagle3"))
    assert all(torch.allclose(one, taken[name], atol=1e-5) for name, one in again.serving.items())
    assert all(torch.allclose(one, reached[name], atol=1e-4) for name, one in again.weights().items())
    other = LiveDraft(target, tmp_path / "version", replace(SETTINGS, share=0.5), begun=zoo.path("eagle3"))
    assert all(torch.allclose(one, reached[name], atol=1e-4) for name, one in other.weights().items())
    for name, one in other.candidate().items():
        assert torch.allclose(one, 0.5 * (began[name] + reached[name]), atol=1e-4), "of all, by the share of now"
    assert other.read(tmp_path / "version").share == 0.75 and other.read(zoo.path("eagle3")).share == 1.0
    other.serving = other.read(zoo.path("eagle3"))  # pointed to by hand
    other.go_back()
    assert all(torch.equal(one, began[name]) for name, one in other.weights().items())
    live.serving = began
    live.go_back()


def test_states_that_are_kept_are_those_of_another_pass(live, lessons):
    kept = requests(3)
    live.judge(kept, (live.serving,))
    read, run = lessons[-1], live._decoder.run
    live._decoder.run = None  # no pass is made again
    try:
        again = live.teacher.lesson(live._rows(kept[1:]))
    finally:
        live._decoder.run = run
    fresh = LiveDraft(
        open_target(zoo.path("target"), "float32", "cpu"), zoo.path("eagle3"), replace(SETTINGS, states_bytes=0)
    )
    anew = fresh.teacher.lesson(fresh._rows(kept[1:]))
    assert read.ids.shape[0] == 3
    for mine, theirs in [(again.states, anew.states), *((again.taps[tap], one) for tap, one in anew.taps.items())]:
        assert torch.allclose(mine[anew.counts], theirs[anew.counts], atol=1e-3, rtol=1e-3)


@dataclass
class Known:
    """In place of a draft: weights are how much each learned request is worth, and judging reads it off."""

    worth: float  # of a step
    settings: Learning = SETTINGS
    serving: float = 1.0
    now: float = 1.0
    num_tokens: int = 0
    num_waiting: int = 0
    num_served: int = 0
    known: frozenset = frozenset()  # prompts that were learned from
    gone_back: list[float] = field(default_factory=list)

    def add(self, one):
        if one.number < self.settings.held_out:
            return True
        self.num_waiting, self.num_served = self.num_waiting + 32, self.num_served + 32
        return False

    def knows(self, one):
        return one.prompt in self.known

    @property
    def fresh_share(self):
        return 1 - self.settings.replay

    def learn(self):
        self.num_tokens, self.num_waiting, self.now = self.num_tokens + 64, 0, self.now + self.worth

    def judge(self, some, drafts):
        return [[min(max(0.0, weights), 3.0) for _ in some] for weights in drafts]

    def candidate(self):
        return self.now

    def go_back(self):
        self.gone_back.append(self.now)
        self.now = self.serving


@pytest.mark.parametrize(("worth", "serves"), [(0.01, True), (-0.01, False)])
def test_a_candidate_that_gains_serves_and_one_that_loses_is_undone(worth, serves):
    live = Known(worth)
    gate = GateOptions(alpha=0.4, margin=0.05, least=2, most=60)
    replay = LiveReplay(live=live, gate=gate, first=1280)
    points = list(replay.run(requests(300)))
    assert [one.first for one in points] == [1.0] * 300
    if serves:
        assert replay.version >= 1 and 1.2 < points[-1].serving == live.serving
    else:
        assert replay.version == 0 and points[-1].serving == live.serving == 1.0 and min(live.gone_back) < 0.95


def candidates(live, **gate):
    heard = []
    options = GateOptions(**{"alpha": 0.4, "margin": 0.05, "least": 2, "most": 60, **gate})
    return Candidates(live=live, gate=options, tell=lambda *turn: heard.append(turn), first=640), heard


def test_weights_that_broke_accept_nothing_and_fail():
    live = Known(nan)
    live.judge = lambda some, drafts: [[one] * len(some) for one in drafts]
    made, heard = candidates(live)
    for one in requests(200):
        made.take([one])
    assert "failed" in [turn for turn, *_ in heard] and live.serving == 1.0
    assert "passed" not in [turn for turn, *_ in heard]


def test_every_request_judges_before_it_is_learned_from_but_for_prompts_that_were(monkeypatch):
    live, given = Known(0.0), requests(120)
    made, heard = candidates(live)
    seen = []
    judge = live.judge
    monkeypatch.setattr(
        live, "judge", lambda some, drafts: (seen.extend(one.prompt for one in some), judge(some, drafts))[1]
    )
    rest = iter(given)
    while not heard:
        made.take([next(rest)])
    assert set(seen) == {one.prompt for one in made.held}
    seen.clear()
    some = [next(rest) for _ in range(6)]
    live.known = frozenset(one.prompt for one in some[:3])
    for one in some:
        made.take([one])
    assert [turn for turn, *_ in heard] == ["tried"] and seen == [one.prompt for one in some[3:]]


def test_requests_that_come_together_meet_the_watch_and_the_candidate_in_one_pass():
    live, given, asked = Known(0.0), iter(requests(200)), list[tuple[int, int]]()
    made, heard = candidates(live, most=1000)
    while not heard:
        made.take([next(given)])
    made.watch(1.0)
    judge = live.judge

    def counted(some, drafts):
        asked.append((len(some), len(drafts)))
        return judge(some, drafts)

    live.judge = counted
    made.take([next(given) for _ in range(4)])
    assert asked == [(4, 3)] and made._before[1].verdict.reason.startswith("undecided after 4")


def test_a_candidate_taken_in_their_midst_meets_those_that_are_left():
    live, seen = Known(0.0), []
    made, heard = candidates(live, most=1000)
    judge = live.judge
    live.judge = lambda some, drafts: (seen.extend(one.prompt for one in some), judge(some, drafts))[1]
    given = requests(60)
    made.take(given)
    assert heard and {one.prompt for one in made.held if one in given[:30]} <= set(seen)
    later = [one.prompt for one in given[-8:] if one.number >= SETTINGS.held_out]
    assert later and set(later) <= set(seen), "they came with it, and nothing had learned from them"


def test_an_answer_of_one_token_is_neither_judged_nor_learned_from():
    live = Known(0.0)
    made, _ = candidates(live)
    made.watch(1.0)
    live.judge = lambda some, drafts: pytest.fail("it has no round")
    made.take([replace(one, answer=one.answer[:1]) for one in requests(8)])
    assert live.num_served == 0 and not made.held


def test_what_begins_to_serve_among_requests_that_come_together_meets_the_next_ones():
    """It is watched from there on; and those left are learned from all the same."""
    live, given = Known(0.0), iter(requests(300))
    made, heard = candidates(live)
    while not heard:
        made.take([next(given)])
    better = 1.4
    made._candidate = (better, made._candidate[1])
    before = live.num_served
    made.take([next(given) for _ in range(100)])
    assert [turn for turn, *_ in heard[:3]] == ["tried", "passed", "watched"] and live.serving == better
    assert "undecided after 0" in made._before[1].verdict.reason and live.num_served > before


@pytest.mark.parametrize(
    ("worth", "turn", "waits"), [(0.0, "tried", lambda now: max(640, now // 2)), (-0.05, "failed", lambda now: 640)]
)
def test_when_the_next_candidate_is_taken(worth, turn, waits):
    """After half as much again; after one that failed, as if learning began."""
    live, told = Known(worth), []
    made, _ = candidates(live, most=5000)
    made.tell = lambda turn, *_: told.append((turn, live.num_tokens))
    for one in requests(1500):
        made.take([one])
    places = [i for i, (what, _) in enumerate(told) if what == turn and told[i + 1 :]]
    for i in places:
        later = next((now for what, now in told[i + 1 :] if what == "tried"), None)
        assert later is None or 0 <= later - told[i][1] - waits(told[i][1]) < 64
    assert len(places) >= 3 and told[places[-1]][1] > 2560


@pytest.mark.parametrize("epochs", [1.0, 3.0])
def test_what_was_served_is_learned_from_again_so_often(epochs):
    live = Known(0.0, settings=replace(SETTINGS, epochs=epochs))
    made, _ = candidates(live)
    for one in requests(20):
        made.take([one])
    before = live.num_tokens
    while made.rehearse():
        pass
    assert live.num_tokens == before if epochs == 1 else 0 <= live.num_tokens - epochs * live.num_served < 64


def test_layers_that_are_named_learn_and_no_others(target):
    chosen = replace(SETTINGS, layers=("fc", "first.up"))
    made = LiveDraft(target, zoo.path("eagle3"), chosen)
    for one in requests(8):
        made.add(one)
    made.learn()
    now = made.weights()
    changed = {name for name, one in made.serving.items() if not torch.equal(one, now[name])}
    assert changed == {name for name in now if name.startswith(("fc.", "first.up."))}


def test_a_layer_that_no_weight_is_named_after_is_refused(target):
    with pytest.raises(ConfigError, match=r"layers: 'head' is in no name of the draft's weights; they are .*fc"):
        LiveDraft(target, zoo.path("eagle3"), replace(SETTINGS, layers=("head",)))
