"""The scheduler by itself: order, seats, memory by its numbers, the pace of prompts, deadlines. No model is there."""

import pytest

from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.sequence import CHUNK, Sequence
from outdraft.engine.scheduler.pace import Pace
from outdraft.engine.scheduler.scheduler import Scheduler, SchedulerSettings
from outdraft.options.errors import ConfigError, RequestError
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins


def sequence(tokens, *, id, request=None):
    tokens = list(tokens)
    return Sequence(
        id=id,
        request=request or Request(prompt_token_ids=tuple(tokens)),
        tokens=tokens,
        prompt_len=len(tokens),
        max_len=10_000,
        seed=0,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=verifier_coins,
        draft_coins=draft_coins,
    )


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Pages:
    """Memory of so many pages of 16 rows; what running sequences have is counted by hand."""

    slices = 1

    def __init__(self, num_pages, *, mixes=True):
        self.num_pages, self.mixes, self.capacity = num_pages, mixes, 16 * num_pages
        self.taken = {}

    @property
    def free(self):
        return self.num_pages - sum(self.taken.values())

    def wanted(self, seq):
        return -(-len(seq.tokens) // 16)

    def awaits(self, seq, reader):
        return False

    def missing(self, seq, num_rows):
        return max(0, -(-(seq.num_cached + num_rows) // 16) - self.taken.get(seq.id, 0))

    def held(self, seq):
        return self.taken.get(seq.id, 0)


def some(count, length=20, **words):
    return [sequence(range(1, length + 1), id=i, **words) for i in range(count)]


def scheduler(**settings):
    clock = Clock()
    made = Scheduler(SchedulerSettings(**settings), clock)
    made.clock = clock
    return made


def add(made, *seqs, room=None):
    for seq in seqs:
        made.add(seq, room or Unbounded())


def join_all(made, room):
    while (seq := made.next_to_join(room)) is not None:
        made.join(seq)


def decodes(seq):
    seq.num_cached = len(seq.tokens) - 1


def test_the_crowd_is_who_runs_and_who_waits_as_far_as_there_are_seats():
    made = scheduler(max_num_seqs=3)
    crowds = [made.crowd]
    for seq in some(4):
        add(made, seq)
        crowds.append(made.crowd)
    assert crowds == [0, 1, 2, 3, 3]
    made.join(made.next_to_join(Unbounded()))
    assert made.crowd == 3 and len(made.running) == 1


def test_the_lower_priority_number_joins_first_and_equals_by_arrival():
    made = scheduler(max_num_seqs=3)
    late, early, middle, other = (
        sequence([1, 2], id=i, request=Request(prompt_token_ids=(1, 2), priority=p))
        for i, p in enumerate((1, -1, 0, 0))
    )
    for seq in (late, early, middle, other):
        add(made, seq)
    join_all(made, Unbounded())
    assert made.running == [early, middle, other]
    assert list(made.waiting) == [late]


def test_a_full_queue_refuses_and_an_empty_seat_does_not():
    made = scheduler(max_num_seqs=2, max_num_waiting=1)
    seqs = some(4)
    add(made, seqs[0])
    join_all(made, Unbounded())
    add(made, seqs[1])
    join_all(made, Unbounded())
    add(made, seqs[2])
    with pytest.raises(RequestError, match="1 requests are waiting, and max_num_waiting=1"):
        add(made, seqs[3])


def test_where_memory_is_short_no_seat_counts_as_free():
    """One who runs leaves two pages of five, and each of the others wants two and a page to go on."""
    made, room = scheduler(max_num_seqs=64, max_num_waiting=1), Pages(5)
    seqs = some(4)
    add(made, seqs[0], room=room)
    join_all(made, room)
    room.taken[0] = 2
    decodes(seqs[0])
    add(made, seqs[1], room=room)  # two pages, and one more for the first: there is room
    add(made, seqs[2], room=room)  # it is the one that may wait
    with pytest.raises(RequestError, match="2 requests are waiting, and max_num_waiting=1"):
        add(made, seqs[3], room=room)
    assert list(made.waiting) == seqs[1:3]
    join_all(made, room)
    assert made.running == seqs[:2]


def test_who_would_join_an_empty_engine_does_not_wait():
    made, room = scheduler(max_num_seqs=64, max_num_waiting=0), Pages(7)
    seqs = some(4)
    add(made, *seqs[:2], room=room)  # two pages and a page to go on with for each, and one is left
    with pytest.raises(RequestError, match="2 requests are waiting, and max_num_waiting=0"):
        add(made, seqs[2], room=room)
    join_all(made, room)
    assert made.running == seqs[:2]


def test_prompts_beside_others_share_the_rows_in_order():
    made = scheduler(max_num_batched_tokens=30)
    for seq in some(3):
        add(made, seq)
    join_all(made, Unbounded(mixes=True))
    turn = made.choose(Unbounded(mixes=True))
    assert [(seq.id, seq.turn.max_chunk) for seq in turn.seqs] == [(0, 30), (1, 10)]
    assert turn.num_prompt_rows == 30


def test_half_of_the_rows_are_for_prompts_of_which_less_is_left():
    """Those who are as long wait for their turn; who has more than the half goes on in the next pass."""
    made, room = scheduler(max_num_batched_tokens=80), Unbounded(mixes=True)
    seqs = [sequence(range(count), id=i) for i, count in enumerate((900, 901, 31, 900, 21))]
    add(made, *seqs)
    join_all(made, room)
    turn = made.choose(room)
    assert [(seq.id, seq.turn.max_chunk) for seq in turn.seqs] == [(4, 40), (2, 19), (0, 40)]
    assert turn.num_prompt_rows == 80


def test_a_less_urgent_prompt_does_not_overtake():
    made, room = scheduler(max_num_batched_tokens=80), Unbounded(mixes=True)
    late = sequence(range(21), id=1, request=Request(prompt_token_ids=(1,) * 21, priority=1))
    add(made, sequence(range(900), id=0), late)
    join_all(made, room)
    assert [seq.id for seq in made.choose(room).seqs] == [0]


def test_what_is_read_beside_a_prompt_counts_as_prompt_rows():
    """Both prompts of a guided request share its rows; the text that is read first waits without a row."""
    made, room = scheduler(max_num_batched_tokens=40), Unbounded(mixes=True)
    guided, other = sequence(range(61), id=0), sequence(range(400), id=1)
    guided.beside = sequence(range(100), id=-1)
    add(made, guided, other)
    join_all(made, room)
    turn = made.choose(room)
    assert turn.seqs == (guided,) and guided.turn.max_chunk == 20 and turn.num_prompt_rows == 40
    guided.num_cached, guided.beside.num_cached = 60, 50
    turn = made.choose(room)
    assert turn.seqs == (guided,) and guided.turn.max_chunk == 40 and turn.num_prompt_rows == 40
    guided.beside.num_cached = 90
    turn = made.choose(room)
    assert turn.seqs == (guided, other) and other.turn.max_chunk == 30 and turn.num_decoding == 0
    guided.beside.num_cached = 99
    assert made.choose(room).num_decoding == 1


def test_where_bits_depend_on_the_pass_a_prompt_is_read_alone_in_fixed_chunks():
    made = scheduler()
    for seq in some(3):
        add(made, seq)
    join_all(made, Unbounded())
    turn = made.choose(Unbounded())
    assert [seq.id for seq in turn.seqs] == [0] and turn.seqs[0].turn.max_chunk == CHUNK


def test_chunks_alone_leave_the_others_their_share_of_the_time():
    made = scheduler(prompt_share=0.25)
    one, prompt = some(2, length=5000)
    for seq in (one, prompt):
        add(made, seq)
    join_all(made, Unbounded())
    decodes(one)
    spent = {True: 0.0, False: 0.0}
    for _ in range(4000):
        turn = made.choose(Unbounded())
        reads = turn.seqs[0] is prompt
        prompt.num_cached = 0
        seconds = 1.0 if reads else 0.05
        spent[reads] += seconds
        made.ran(turn, seconds)
    assert spent[True] / (spent[True] + spent[False]) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(("fixed", "row"), [(0.0, 0.001), (0.002, 0.001), (0.01, 0.0005), (0.015, 0.003)])
def test_beside_others_prompts_have_their_share_and_no_pass_lasts_two_rounds(fixed, row):
    """However few rows a chunk has, it costs something: behind a long context that is most of it."""
    pace, quiet = Pace(0.25), 0.02
    lasts, read = [], 0
    for _ in range(1500):
        pace.expect(4, 1)
        rows = pace.rows(4, 512)
        seconds = quiet + (fixed + row * rows if rows else 0.0)
        lasts.append(seconds)
        read += rows
        pace.saw(4, rows, seconds)
    late = lasts[500:]
    assert max(late) <= 2 * quiet and sum(lasts[:10]) <= 10 * 3 * quiet
    assert quiet * len(late) / sum(late) == pytest.approx(0.75, abs=0.02)
    assert read > 500, "the prompt goes on"


def test_where_more_is_read_than_decoded_prompts_have_more_time():
    spent = {}
    for num_reading, num_soon in ((1, 0), (4, 0), (8, 0), (400, 0), (1, 1), (2, 2), (3, 1)):
        pace, quiet, seconds = Pace(0.2), 0.02, {True: 0.0, False: 0.0}
        for number in range(1500):
            pace.expect(4, num_reading, num_soon)
            rows = pace.rows(4, 512)
            if number >= 500:
                seconds[False] += quiet
                seconds[True] += 0.001 * rows
            pace.saw(4, rows, quiet + 0.001 * rows)
        spent[num_reading, num_soon] = seconds[True] / sum(seconds.values())
    assert spent[1, 0] == spent[4, 0] == spent[1, 1] == pytest.approx(0.2, abs=0.03)
    assert spent[8, 0] == spent[2, 2] == pytest.approx(0.5, abs=0.04) and 0.7 < spent[400, 0] < 0.8
    assert spent[1, 0] < spent[3, 1] < spent[2, 2], "one that is soon read counts for several"


def test_hiccups_do_not_starve_a_prompt():
    """Every fourth pass is stopped for a while by another program."""
    pace, quiet, read = Pace(0.2), 0.02, 0
    for number in range(2000):
        pace.expect(4, 1)
        rows = pace.rows(4, 512)
        read += rows
        pace.saw(4, rows, quiet + 0.001 * rows + (0.03 if number % 4 == 0 else 0.0))
    assert read > 2000


def test_admission_leaves_each_who_runs_a_page():
    room = Pages(5)
    made = scheduler()
    seqs = some(3)
    for seq in seqs:
        add(made, seq)
    made.join(made.next_to_join(room))
    room.taken[0] = 2
    decodes(seqs[0])
    assert made.next_to_join(room) is seqs[1]
    made.join(seqs[1])
    room.taken[1] = 2
    decodes(seqs[1])
    assert made.next_to_join(room) is None


def test_the_last_in_order_gives_back_its_memory_and_waits_before_later_ones():
    room = Pages(4)
    made = scheduler()
    seqs = some(3, length=32)
    for seq in seqs[:2]:
        add(made, seq)
        made.join(seq)
        room.taken[seq.id] = 2
        seq.num_cached = 32
        seq.tokens.append(7)
    add(made, seqs[2])
    turn = made.choose(room)
    assert turn.preempted == (seqs[1],) and turn.seqs == (seqs[0],)
    made.put_back(seqs[1])
    assert list(made.waiting) == [seqs[1], seqs[2]] and made.running == [seqs[0]]


@pytest.mark.parametrize(("num_pages", "gone"), [(9, []), (8, [2]), (7, [2]), (6, [2])])
def test_as_many_give_back_their_memory_as_it_takes(num_pages, gone):
    """Three texts of two full pages want a third one each; who has given way wants nothing more, and left its two."""
    made, room = scheduler(), Pages(num_pages)
    for seq in some(3, length=33):
        add(made, seq)
        made.join(seq)
        decodes(seq)
        room.taken[seq.id] = 2
    assert [seq.id for seq in made.choose(room).preempted] == gone


def test_what_a_text_shares_is_not_free_when_it_has_gone():
    """Who leaves one page of its own makes room for one, where two are wanted: another has to go too."""
    made, room = scheduler(), Pages(6)
    for seq in some(3, length=33):
        add(made, seq)
        made.join(seq)
        decodes(seq)
        room.taken[seq.id] = 2
    room.held = lambda seq: 1 if seq.id == 2 else 2
    assert [seq.id for seq in made.choose(room).preempted] == [2, 1]


def test_a_guess_needs_room_beyond_what_every_round_needs():
    room = Pages(5)
    made = scheduler()
    seqs = some(2, length=30)
    for seq in seqs:
        add(made, seq)
        made.join(seq)
        room.taken[seq.id] = 2
        decodes(seq)
    turn = made.choose(room)
    assert turn.seqs == tuple(seqs) and not turn.preempted
    assert [seq.turn.drafts for seq in seqs] == [True, False]


def test_deadlines_count_from_when_it_was_asked_for():
    made = scheduler()
    seq = sequence([1, 2], id=0, request=Request(prompt_token_ids=(1, 2), timeout=3.0))
    seq.asked_at, made.clock.now = 1.0, 3.9
    add(made, seq)
    assert made.expired() == []
    made.clock.now = 4.1
    assert made.expired() == [seq]


def test_deadlines_count_from_arrival_waiting_or_running():
    made = scheduler(max_num_seqs=1)
    ask = Request(prompt_token_ids=(1, 2), timeout=3.0)
    runs, waits, patient = (sequence([1, 2], id=i, request=ask) for i in range(3))
    patient.request = Request(prompt_token_ids=(1, 2))
    for seq in (runs, waits, patient):
        add(made, seq)
    join_all(made, Unbounded())
    made.clock.now = 2.9
    assert made.expired() == []
    made.clock.now = 3.1
    assert {seq.id for seq in made.expired()} == {0, 1}
    assert made.drop(runs) and not made.drop(waits)
    assert made.expired() == [] and made.running == [] and list(made.waiting) == [patient]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs=0: must be at least 1"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens=0: must be at least 1"),
        ({"max_num_waiting": -1}, "max_num_waiting=-1: must be at least 0"),
        ({"prompt_share": 1.0}, "prompt_share=1.0: must be between"),
    ],
)
def test_numbers_out_of_range_are_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        SchedulerSettings(**words)


@pytest.mark.parametrize(("length", "num_soon"), [(20, 1), (600, 0)])
def test_a_prompt_that_fits_into_one_pass_is_soon_read(length, num_soon, monkeypatch):
    made = scheduler(max_num_batched_tokens=512)
    decoding, reading = sequence(range(1, 5), id=0), sequence([1] * length, id=1)
    add(made, decoding, reading)
    join_all(made, Unbounded())
    decodes(decoding)
    asked = []
    monkeypatch.setattr(made._pace, "expect", lambda *numbers: asked.append(numbers))
    made.choose(Unbounded(mixes=True))
    assert asked[-1] == (1, 1, num_soon)
