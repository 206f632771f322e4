"""Several drafters behind one: any arm at any time leaves text, distribution and memories as they should be."""

import json
from dataclasses import replace

import pytest
from contracts.rows.eagle import eagle_net
from contracts.rows.early_exit import exit_head
from contracts.sides import twin
from contracts.spec_rows import ROWS, quick

from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run, state_size
from outdraft.verify.auto import Auto

PROMPTS = ((5, 6, 7, 8) * 4, (1, 2, 3), tuple(range(30)), (9,))
SETTINGS = [{}, {"temperature": 1.0, "seed": 7}]


def all_of_them(target, directory):
    """Every kind of drafter: without state, with a cache of its own, on taps, in the target's cache, with probes."""
    sides = []
    for name, side in (("draft_model", twin), ("eagle", high_eagle), ("early_exit", exit_head)):
        place = directory / name
        place.mkdir(exist_ok=True)
        sides.append({"method": name, **side(target, place)})
    return {"drafters": ["ngram", *sides, "lookahead"]}


def high_eagle(target, directory):
    """Like the contract's, but its taps stand behind the exit layer."""
    side = eagle_net(target, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "taps": [1, 2]}))
    return side


class InTurn:
    """Another arm for each sequence and round; now and then none."""

    def __init__(self, arms=5):
        self.arms = arms
        self.planned = []

    def plan(self, seqs):
        turns = [seq.id + seq.num_output for seq in seqs]
        self.planned = [Budget(depth=turn * 7 % 5, arm=turn % self.arms) for turn in turns]
        return self.planned

    def update(self, events):
        pass

    def end(self, seqs):
        pass


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return Subject(DrafterRow(drafter="several", side=all_of_them), tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize("params", SETTINGS)
def test_any_arm_at_any_time_writes_the_same_text(subject, params):
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=24, **params)) for p in PROMPTS]
    for order in (requests, requests[::-1]):
        outcomes = run(subject.engine(policy=InTurn(), verifier=Auto(), recheck=True), order)
        assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in order]
        assert sum(outcome.stats.num_draft_tokens for outcome in outcomes) > 20


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=quick(row)) for row in ROWS])
def test_every_drafter_gets_along_with_another(row, tmp_path):
    """Beside look-up, which guesses in its stead every other time: it must tell its own guesses from others'."""

    def both(target, directory):
        return {"drafters": [{"method": row.drafter, **row.options, **row.side(target, directory)}, "ngram"]}

    beside = replace(row, drafter="several", side=both, options={})
    try:
        subject = Subject(beside, tmp_path)
        engine = subject.engine(policy=InTurn(arms=2), verifier=Auto())
    except CapabilityError as error:
        pytest.skip(str(error))
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=16)) for p in PROMPTS]
    outcomes = run(engine, requests)
    assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in requests]


@pytest.mark.parametrize("name", ["pearl", "run_ahead", "ssd"])
def test_what_works_beside_the_pass_is_refused(name, tmp_path):
    """Inside another it would never get to guess, without a word."""
    row = next(row for row in ROWS if row.drafter == name)

    def inside(target, directory):
        return {"drafters": [{"method": name, **row.options, **row.side(target, directory)}]}

    with pytest.raises(CapabilityError, match=f"{name}.*name it alone"):
        Subject(replace(row, drafter="several", side=inside, options={}), tmp_path).engine()


def test_it_needs_what_its_drafters_need(subject):
    engine = subject.engine()
    drafter = engine.parts.drafter
    assert drafter.needs == Needs(taps=(1, 2), resume_layer=1)
    arms = subject.method.arms(drafter)
    assert [arm.name for arm in arms] == ["ngram", "draft_model", "eagle", "early_exit", "lookahead"]
    assert [arm.peek is not None for arm in arms] == [True, False, False, False, False]
    assert set(subject.method.describe(drafter)["arms"]["draft_model"]) >= {"kernels", "variant"}


def test_ended_sequences_leave_nothing(subject):
    engine = subject.engine(policy=InTurn())
    before = state_size(engine.parts.drafter, [engine.parts.target, engine.parts.target.target])
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=12)) for p in PROMPTS]
    sizes = []
    for _ in range(2):
        run(engine, requests)
        sizes.append(state_size(engine.parts.drafter, [engine.parts.target, engine.parts.target.target]))
    assert before <= sizes[0] == sizes[1]


def test_an_arm_that_is_not_asked_runs_nothing_and_catches_up(tmp_path):
    """No pass of the draft model while look-up guesses; afterwards its guess is that of one that always guessed."""
    row = DrafterRow(
        drafter="several",
        side=lambda target, place: {"drafters": ["ngram", {"method": "draft_model", **twin(target, place)}]},
    )
    subject = Subject(row, tmp_path)
    passes = {}
    for name, arms in (("late", [0] * 6 + [1] * 6), ("always", [1] * 12)):

        class Script(InTurn):
            def plan(self, seqs, left=iter(arms)):  # noqa: B008
                return [Budget(depth=1, arm=next(left, 1)) for _ in seqs]

        engine = subject.engine(policy=Script())
        network = engine.parts.drafter.drafters[1].model._network
        passes[name], score = [], network.logits
        network.logits = lambda *given, rows=passes[name], score=score: rows.append(len(given[0])) or score(*given)
        request = Request(prompt_token_ids=(5, 6, 7, 8) * 4, params=SamplingParams(max_tokens=30))
        outcome = run(engine, [request])[0]
        assert outcome.seq.output == subject.oracle(request)
        passes[name].append([e.num_accepted for e in outcome.events][-2:])
    assert len(passes["late"]) < len(passes["always"]) and passes["late"][0] > 16  # one pass over all that was missed
    assert passes["late"][-1] == passes["always"][-1]


def test_bad_options(subject, tmp_path):
    with pytest.raises(ConfigError, match="must be a list"):
        Subject(DrafterRow(drafter="several", options={"drafters": "ngram"}), tmp_path)
    with pytest.raises(ConfigError, match="unknown drafter 'engram', did you mean 'ngram'"):
        Subject(DrafterRow(drafter="several", options={"drafters": ["engram"]}), tmp_path).engine()
    policy = InTurn(arms=9)
    with pytest.raises(ConfigError, match=r"asks for arm [5-8], there are 5 drafters"):
        run(subject.engine(policy=policy), [Request(prompt_token_ids=p) for p in PROMPTS])
    with pytest.raises(
        CapabilityError, match=r"'eagle' taps layer 0, and another one restarts the target behind layer 1"
    ):
        blind = {"drafters": [{"method": "eagle", **eagle_net(subject.decoder, tmp_path)}, "early_exit"]}
        Subject(DrafterRow(drafter="several", options=blind), tmp_path).engine()
    same = Subject(DrafterRow(drafter="several", options={"drafters": ["ngram", {"method": "ngram"}]}), tmp_path)
    assert [arm.name for arm in same.method.arms(same.engine().parts.drafter)] == ["ngram#1", "ngram#2"]


class Resting(InTurn):
    """From its ninth token on, the draft model and the one on taps rest for the texts whose number is `left` or odd."""

    left = None

    def plan(self, seqs):
        return [
            replace(budget, resting=frozenset({1, 2}))
            if seq.num_output > 8 and (seq.id % 2 or seq.id == self.left)
            else budget
            for seq, budget in zip(seqs, super().plan(seqs), strict=True)
        ]


@pytest.mark.parametrize("params", SETTINGS)
def test_who_rests_lets_go_of_the_text_and_changes_none(subject, params):
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=24, **params)) for p in PROMPTS]
    engine = subject.engine(policy=Resting(), verifier=Auto())
    drafter, heard = engine.parts.drafter, set()
    observe = drafter.drafters[2].observe

    def listen(seen):
        heard.update(one.seq.id % 2 for one in seen if one.seq.num_output > 16)
        observe(seen)

    drafter.drafters[2].observe = listen
    outcomes = run(engine, requests)
    assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in requests]
    assert heard == {0}  # of the odd ones it hears nothing any more
    assert not any(one.following or one._left for one in drafter._held)


class Sparing(InTurn):
    """The one on taps and the draft model never hear of odd texts."""

    def __init__(self):
        super().__init__()
        self.crowds = []

    def spare(self, seq, crowd):
        self.crowds.append(crowd)
        return frozenset({1, 2}) if seq.id % 2 else frozenset()


@pytest.mark.parametrize("params", SETTINGS)
def test_who_is_spared_hears_nothing_of_a_text_and_changes_none(subject, params):
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=24, **params)) for p in PROMPTS]
    engine = subject.engine(policy=Sparing(), verifier=Auto())
    told = {"begin": set(), "observe": set(), "end": set()}

    def listen(ids, verb):
        def hear(given):
            ids.update(each.seq.id if hasattr(each, "seq") else each.id for each in given)
            verb(given)

        return hear

    for one in engine.parts.drafter.drafters[1:3]:
        for name, ids in told.items():
            setattr(one, name, listen(ids, getattr(one, name)))
    outcomes = run(engine, requests)
    assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in requests]
    assert all(ids and not any(i % 2 for i in ids) for ids in told.values())
    assert engine.parts.policy.crowds == [len(PROMPTS)] * len(PROMPTS)


def test_a_text_that_is_spared_wants_no_states(subject):
    engine = subject.engine(policy=Sparing())
    wanted, forward = {0: [], 1: []}, engine.parts.target.forward
    engine.parts.target.forward = lambda packed, taps=(): (
        wanted[packed.seqs[0].id].append(bool(taps)) or forward(packed, taps)
    )
    for _ in wanted:
        run(engine, [Request(prompt_token_ids=(1, 2, 3))])
    assert wanted[0] and all(wanted[0]) and wanted[1] and not any(wanted[1])
    assert not any(one.following or one._left for one in engine.parts.drafter._held)


def test_states_that_no_arm_wants_are_not_kept(subject):
    policy = Resting()
    policy.left = 0
    engine = subject.engine(policy=policy, verifier=Auto())
    drafter = engine.parts.drafter
    seq = engine.add(Request(prompt_token_ids=PROMPTS[0], params=SamplingParams(max_tokens=30)))
    while seq.num_output <= 8:
        engine.step()
    assert drafter.needs == Needs(taps=(1, 2), resume_layer=1)
    engine.step()
    assert drafter.needs == Needs(resume_layer=1)
    other = engine.add(Request(prompt_token_ids=PROMPTS[1], params=SamplingParams(max_tokens=30)))
    engine.step()
    assert other.id == 1 and drafter.needs.taps == (1, 2)  # the new text is heard from its beginning
