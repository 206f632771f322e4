"""Who reads in slices of layers, and when, by a clock that tells what each pass takes; no model is there."""

from itertools import pairwise

import pytest

from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.sequence import Sequence
from outdraft.engine.scheduler.scheduler import Scheduler, SchedulerSettings
from outdraft.engine.scheduler.slices import Slices
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins

LAYERS = 12
QUIET = 0.02


def sequence(count: int, *, id: int, is_read: bool = False, priority: int = 0) -> Sequence:
    tokens = [1] * count
    return Sequence(
        id=id,
        request=Request(prompt_token_ids=tuple(tokens), priority=priority),
        tokens=tokens,
        prompt_len=count,
        max_len=100_000,
        seed=0,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=verifier_coins,
        draft_coins=draft_coins,
        num_cached=count - 1 if is_read else 0,
    )


class Machine:
    """Runs what the scheduler chooses: a round takes 20 ms, and a row of a prompt 1 ms behind what `behind` it is."""

    def __init__(self, *, slices: int = LAYERS, behind: float = 3e-6) -> None:
        self.room = Unbounded(mixes=True, slices=slices)
        self.made = Scheduler(SchedulerSettings(prompt_share=0.25), lambda: 0.0)
        self.behind = behind  # seconds for each row of the cache that a chunk reads
        self.layers_left = 0
        self.passes: list[tuple[int, int, float]] = []  # decoding, layers, seconds

    def add(self, *seqs: Sequence) -> None:
        for seq in seqs:
            self.made.add(seq, self.room)
            self.made.join(seq)

    def turn(self) -> tuple[int, ...]:
        """One; who was in it."""
        turn = self.made.choose(self.room)
        reading = [seq for seq in turn.seqs if not seq.prefilled]
        rows = [min(seq.num_unread, seq.turn.max_chunk) for seq in reading]
        seconds = sum(0.001 * count + self.behind * seq.num_cached for seq, count in zip(reading, rows, strict=True))
        is_over = True
        if turn.num_layers:
            self.layers_left = self.layers_left or LAYERS
            count = min(turn.num_layers, self.layers_left)
            self.layers_left -= count
            seconds, is_over = seconds * count / LAYERS, self.layers_left == 0
        else:
            seconds += QUIET * (turn.num_decoding > 0)
        for seq, count in zip(reading, rows, strict=True):
            if is_over:
                seq.num_cached += count
        self.passes.append((turn.num_decoding, turn.num_layers, seconds))
        self.made.ran(turn, seconds, is_over=is_over)
        return tuple(seq.id for seq in turn.seqs)


def with_a_long_prompt(**words) -> tuple[Machine, Sequence]:
    """Four decode, and a prompt comes of which 12,000 tokens are read by then."""
    machine, long = Machine(**words), sequence(16_001, id=9)
    machine.add(*(sequence(30, id=i, is_read=True) for i in range(4)), long)
    long.num_cached = 12_000
    return machine, long


def test_a_long_prompt_costs_others_its_share_and_no_long_pause():
    machine, long = with_a_long_prompt()
    while long.num_unread:
        machine.turn()
    later = machine.passes[250:]  # at first a second is spent that was saved up
    slices = [seconds for _, layers, seconds in later if layers]
    rounds = [seconds for decoding, layers, seconds in later if decoding and not layers]
    assert len(slices) > 2 * LAYERS
    assert max(slices) <= QUIET
    assert all(then[0] for now, then in pairwise(machine.passes) if now[1]), "others have their turn after a slice"
    others = sum(rounds) / (sum(rounds) + sum(slices))
    assert others == pytest.approx(0.75, abs=0.08)


def test_where_passes_are_whole_no_prompt_is_read_in_slices():
    machine, _ = with_a_long_prompt(slices=1)
    for _ in range(300):
        machine.turn()
    assert (
        not any(layers for _, layers, _ in machine.passes)
        and max(seconds for *_, seconds in machine.passes) > 3 * QUIET
    )


def test_a_short_prompt_is_read_between_the_slices_of_a_long_one():
    machine, long = with_a_long_prompt()
    while len(machine.passes) < 400 or not machine.passes[-1][1]:  # nothing is saved up any more
        machine.turn()
    short = sequence(25, id=10)
    machine.add(short)
    turns = 0
    while short.num_unread and turns < 200:
        machine.turn()
        turns += 1
    assert turns < 60 and long.num_unread


@pytest.mark.parametrize(("num_tokens", "num_read", "priority"), [(16_001, 12_100, 0), (16_001, 0, 0), (25, 0, 5)])
def test_who_may_not_overtake_waits_until_a_long_prompt_is_read(num_tokens, num_read, priority):
    """One behind as long a context, one that is longer, and one that is less urgent."""
    machine, long = with_a_long_prompt()
    while not machine.passes or not machine.passes[-1][1]:
        machine.turn()
    other = sequence(num_tokens, id=10, priority=priority)
    machine.add(other)
    other.num_cached = num_read
    while long.num_unread > 600:  # from there on the other one may have less left
        machine.turn()
    assert other.num_cached == num_read and max(seconds for *_, seconds in machine.passes[250:]) <= 2 * QUIET


def test_after_a_slice_others_have_a_round_without_prompts():
    machine, _ = with_a_long_prompt()
    machine.add(*(sequence(200, id=i) for i in range(10, 20)))
    for _ in range(400):
        machine.turn()
    after = [seconds for (_, now, _), (_, _, seconds) in pairwise(machine.passes) if now]
    assert len(after) > 20 and max(after) == QUIET


def test_a_clock_that_stands_still_is_no_error():
    slices = Slices()
    slices.begin(sequence(100, id=0), LAYERS)
    slices.ran(1, 64, 0.0, is_over=False)
    assert slices.layers(0.02) == LAYERS - 1


def test_a_chunk_that_is_under_way_goes_on_when_no_text_decodes_any_more():
    machine, long = with_a_long_prompt()
    while not machine.layers_left:
        machine.turn()
    for seq in list(machine.made.running):
        if seq is not long:
            machine.made.drop(seq)
    before = long.num_cached
    assert machine.turn() == (9,) and long.num_cached > before and not machine.layers_left
    assert machine.turn() == (9,) and machine.passes[-1][1] == 0, "from there on in whole passes"


def test_whose_memory_is_taken_begins_its_chunk_again():
    machine, long = with_a_long_prompt()
    while not machine.layers_left:
        machine.turn()
    machine.made.put_back(long)
    machine.layers_left, long.num_cached = 0, 0
    assert all(machine.turn() == (0, 1, 2, 3) for _ in range(5)), "it waits"
    machine.made.join(long)
    for _ in range(20):
        machine.turn()
    assert long.num_cached > 0


def test_nothing_is_learned_of_rows_from_a_chunk_that_no_text_waited_for():
    slices, seq = Slices(), sequence(1000, id=0)
    assert slices.layers(0.01) == 1
    slices.begin(seq, LAYERS)
    rows = seq.turn.max_chunk
    slices.ran(1, rows, 0.5, is_over=False)
    slices.ran(slices.rest(), rows, 5.0, is_over=True)
    slices.begin(seq, LAYERS)
    assert seq.turn.max_chunk == rows
