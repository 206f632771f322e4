"""The shields alone: what goes in, what comes out, and what the drafter behind them is asked."""

import logging

import pytest

from outdraft.core.draft import Continuation, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.decode.forced import Undrafted
from outdraft.decode.parts import Parts
from outdraft.decode.shield import ShieldedDrafter, ShieldedPolicy
from outdraft.engine.loop import Engine
from outdraft.options.errors import CacheFullError, RequestError
from outdraft.options.params import SamplingParams
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget

pytestmark = pytest.mark.logs_faults

BUDGETS = [Budget(depth=2)] * 3


class Recording:
    """Answers with one token behind the pending one; `broken`: the verbs that raise; keeps what it was asked."""

    def __init__(self, *broken: str) -> None:
        self.needs, self.traits, self.broken, self.asked = Needs(taps=(1,)), Traits(ahead=self.ahead), broken, []

    def _meet(self, verb, ids):
        self.asked.append((verb, ids))
        if verb in self.broken:
            raise OSError(verb)

    def begin(self, seqs):
        self._meet("begin", [seq.id for seq in seqs])

    def propose(self, seqs, budgets):
        self._meet("propose", [seq.id for seq in seqs])
        drafts = [chain([seq.pending, 1]) for seq in seqs]
        return drafts + drafts[:1] if "count" in self.broken else drafts

    def ahead(self, seqs, drafts, is_over):
        self._meet("ahead", [seq.id for seq in seqs])
        return [Continuation(token=seq.id) for seq in seqs]

    def observe(self, seen):
        self._meet("observe", [one.seq.id for one in seen])

    def end(self, seqs):
        self._meet("end", [seq.id for seq in seqs])


@pytest.fixture
def seqs():
    engine = Engine(
        Parts(target=TableTarget(), drafter=Recording(), verifier=ReferenceRule(), policy=ConstantPolicy(BUDGETS[0]))
    )
    return [engine.prepare(Request(prompt_token_ids=(3, 1), params=SamplingParams())) for _ in range(3)]


def shielded(*broken: str) -> tuple[Recording, ShieldedDrafter]:
    drafter = Recording(*broken)
    return drafter, ShieldedDrafter(drafter)


def seen(seq) -> Seen:
    return Seen(seq=seq, start=0, num_committed=1, hidden={})


def test_a_sound_drafter_is_asked_as_if_no_shield_were_there(seqs):
    drafter, shield = shielded()
    shield.begin(seqs)
    assert [draft.num_nodes for draft in shield.propose(seqs, BUDGETS)] == [2, 2, 2]
    found = shield.traits.ahead(seqs, [chain([1])] * 3, lambda: True)
    assert [one.token for one in found] == [0, 1, 2]
    shield.observe([seen(seq) for seq in seqs])
    shield.end(seqs)
    assert drafter.asked == [
        *(("begin", [i]) for i in range(3)),
        ("propose", [0, 1, 2]),
        ("ahead", [0, 1, 2]),
        ("observe", [0, 1, 2]),
        *(("end", [i]) for i in range(3)),
    ]
    assert shield.needs is drafter.needs and shield.traits.inner == (drafter,)
    assert all(seq.speculates for seq in seqs)


def test_a_drafter_that_does_not_run_ahead_is_not_asked_to():
    drafter = Recording()
    drafter.traits = Traits()
    assert ShieldedDrafter(drafter).traits.ahead is None


@pytest.mark.parametrize("fault", ["propose", "count"])
def test_where_a_batch_breaks_each_is_asked_alone(seqs, fault):
    drafter, shield = shielded(fault)
    assert [draft.tokens.tolist() for draft in shield.propose(seqs, BUDGETS)] == [[1], [1], [1]]
    assert [ids for verb, ids in drafter.asked if verb == "propose"] == [[0, 1, 2], [0], [1], [2]]
    assert [ids for verb, ids in drafter.asked if verb == "end"] == [[0], [1], [2]]
    assert not any(seq.speculates for seq in seqs)


def test_nothing_to_guess_is_no_fault_of_anybody():
    assert shielded("propose")[1].propose([], []) == []


def test_who_lost_the_drafter_is_not_asked_about(seqs):
    drafter, shield = shielded()
    shield.give_up(seqs[1:2], OSError())
    assert shield.traits.ahead(seqs, [chain([1])] * 3, lambda: True)[1] is None
    shield.observe([seen(seq) for seq in seqs])
    shield.end(seqs)
    shield.give_up(seqs[1:2], OSError())  # and ends once only
    assert drafter.asked == [("end", [1]), ("ahead", [0, 2]), ("observe", [0, 2]), ("end", [0]), ("end", [2])]


def test_no_drafter_is_left_to_ask(seqs):
    drafter, shield = shielded("ahead", "observe")
    shield.give_up(seqs, OSError())
    drafter.asked.clear()
    assert shield.traits.ahead(seqs, [chain([1])] * 3, lambda: True) == [None] * 3
    shield.observe([seen(seq) for seq in seqs])
    assert drafter.asked == []


def test_a_fault_ahead_is_settled_by_the_next_observe(seqs):
    drafter, shield = shielded("ahead")
    assert shield.traits.ahead(seqs[:2], [chain([1])] * 2, lambda: True) == [None, None]
    assert all(seq.speculates for seq in seqs), "the pass is under way"
    shield.observe([seen(seq) for seq in seqs])
    assert [seq.speculates for seq in seqs] == [False, False, True]
    seqs[0].speculates = True
    shield.observe([seen(seq) for seq in seqs])
    assert seqs[0].speculates, "it is settled once"
    assert drafter.asked[-1] == ("observe", [0, 2])


def test_a_drafter_that_cannot_end_a_sequence_costs_no_other(seqs, caplog):
    drafter, shield = shielded("end")
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        shield.end(seqs)
    assert [ids for _, ids in drafter.asked] == [[0], [1], [2]] and all(seq.speculates for seq in seqs)
    (record,) = caplog.records
    assert "the drafter Recording raised OSError: end" in record.getMessage() and record.exc_info[1].args == ("end",)


class Planner:
    """Gives as many budgets as it is given, or something else."""

    def __init__(self, number: int, of=BUDGETS[0]) -> None:
        self.number, self.of = number, of

    def plan(self, seqs):
        return [self.of] * self.number


class Sparing(Planner):
    """Spares an arm of the first sequence, and fails at the others."""

    def spare(self, seq, crowd):
        if seq.id == 1:
            raise ValueError("a fault of the test")
        return {crowd} if not seq.id else {"eagle"}


def test_a_policy_that_cannot_say_whom_it_spares_spares_none(seqs, caplog):
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        assert [ShieldedPolicy(Sparing(3)).spare(seq, 2) for seq in seqs] == [{2}, set(), set()]
        assert "a fault of the test" in caplog.text
        assert ShieldedPolicy(Sparing(3)).spare(seqs[2], 2) == set()
    assert "in place of a set of whole numbers" in caplog.text
    assert ShieldedPolicy(Planner(3)).spare(seqs[0], 2) == set()


def test_what_is_no_budget_means_plain_decoding(seqs, caplog):
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        assert ShieldedPolicy(Planner(3, of=4)).plan(seqs) == [Budget(depth=0)] * 3
    assert "4 in place of a budget" in caplog.text


@pytest.mark.parametrize("number", [0, 2, 4])
def test_another_number_of_budgets_means_plain_decoding(seqs, number, caplog):
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        assert ShieldedPolicy(Planner(number)).plan(seqs) == [Budget(depth=0)] * 3
    assert f"{number} budgets for 3 sequences" in caplog.text


def test_the_right_number_of_budgets_is_taken(seqs):
    assert ShieldedPolicy(Planner(3)).plan(seqs) == BUDGETS


class Crowded(Recording):
    """Says that its cache is full: at so many calls of a verb, or for a sequence as long as it is in `full`."""

    def __init__(self, **times: int) -> None:
        super().__init__()
        self.times, self.full = times, set()

    def _meet(self, verb, ids):
        super()._meet(verb, ids)
        if self.times.get(verb, 0) > 0 or (verb == "begin" and self.full & set(ids)):
            self.times[verb] = self.times.get(verb, 0) - 1
            raise CacheFullError("no page is left")


def begun(drafter):
    """What is begun and not ended, in order."""
    held = []
    for verb, ids in drafter.asked:
        if verb == "begin":
            held += ids
        elif verb == "end":
            held = [one for one in held if one not in ids]
    return held


def test_who_finds_no_room_to_begin_begins_when_there_is(seqs, caplog):
    drafter = Crowded()
    drafter.full = {1}
    shield = ShieldedDrafter(drafter)
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        shield.begin(seqs)
        assert begun(drafter) == [0, 2] and all(seq.speculates for seq in seqs)
        guesses = shield.propose(seqs, BUDGETS)
        assert [one.num_nodes for one in guesses] == [2, 1, 2]
        assert [isinstance(one, Undrafted) for one in guesses] == [False, True, False]  # so the policy learns nothing
        assert shield.traits.ahead(seqs, [chain([1])] * 3, lambda: True)[1] is None
        shield.observe([seen(seq) for seq in seqs])
        drafter.full.clear()
        assert [one.num_nodes for one in shield.propose(seqs, BUDGETS)] == [2, 2, 2]
    assert [ids for verb, ids in drafter.asked if verb in ("propose", "ahead", "observe")] == [
        [0, 2],
        [0, 2],
        [0, 2],
        [0, 1, 2],
    ]
    assert begun(drafter) == [0, 2, 1] and not caplog.records
    shield.end(seqs)
    assert begun(drafter) == []


def test_who_is_over_before_there_is_room_was_never_begun(seqs):
    drafter = Crowded()
    drafter.full = {1}
    shield = ShieldedDrafter(drafter)
    shield.begin(seqs)
    ends = len([verb for verb, _ in drafter.asked if verb == "end"])
    shield.end(seqs[1:2])
    assert not shield._late
    shield.give_up(seqs[1:2], OSError())
    assert len([verb for verb, _ in drafter.asked if verb == "end"]) == ends + 1  # of `give_up`, which asks anyway
    drafter.full.clear()
    assert [one.num_nodes for one in shield.propose([seqs[0], seqs[2]], BUDGETS[:2])] == [2, 2]
    assert begun(drafter) == [0, 2]


def test_a_cache_that_is_full_while_it_learns_costs_a_round_and_no_drafter(seqs, caplog):
    drafter = Crowded(observe=1)
    shield = ShieldedDrafter(drafter)
    with caplog.at_level(logging.WARNING, logger="outdraft"):
        shield.begin(seqs)
        shield.observe([seen(seq) for seq in seqs])
        assert begun(drafter) == [], "it is not known of which sequences it has learned"
        assert [one.num_nodes for one in shield.propose(seqs, BUDGETS)] == [2, 2, 2]
    assert begun(drafter) == [0, 1, 2] and all(seq.speculates for seq in seqs) and not caplog.records


def test_all_may_have_no_room(seqs):
    drafter = Crowded()
    drafter.full = {0, 1, 2}
    shield = ShieldedDrafter(drafter)
    shield.begin(seqs)
    assert [one.num_nodes for one in shield.propose(seqs, BUDGETS)] == [1, 1, 1]
    assert not [verb for verb, _ in drafter.asked if verb == "propose"]


@pytest.mark.parametrize(("error", "is_logged"), [(OSError("broken"), True), (RequestError("too much work"), False)])
def test_a_requests_own_error_is_no_fault_of_the_drafter(seqs, caplog, error, is_logged):
    _, shield = shielded()
    shield.give_up(seqs[1:2], error)
    assert not seqs[1].speculates and bool(caplog.records) == is_logged
