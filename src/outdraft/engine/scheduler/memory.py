"""Who has memory in the next pass, where there is a limit: who may join, who gives back, who may draft.

All numbers are pages (`core/room.py`).
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.cache import PAGE
from outdraft.core.room import Room
from outdraft.core.sequence import Sequence


def promised(running: Seq[Sequence], room: Room) -> int:
    """Pages that those who run will have: for their whole prompts, and one page more for each."""
    return sum(room.missing(one, len(one.tokens) - one.num_cached + PAGE) for one in running)


def num_joining(first: Seq[Sequence], running: Seq[Sequence], room: Room) -> int:
    """How many of these, who wait and have seats, find room before the next pass."""
    if room.capacity is None:
        return len(first)
    taken, free = promised(running, room), room.free
    for count, seq in enumerate(first):
        wanted = room.wanted(seq)
        if wanted + taken > free and (running or count):  # alone each of them fits
            return count
        taken += wanted + 1
    return len(first)


def make_room(chosen: Seq[Sequence], running: Seq[Sequence], room: Room) -> list[Sequence]:
    """Who must give back its memory so that the others of the pass have theirs; and who may draft beyond it.

    `running`: in their order.
    """
    preempted: list[Sequence] = []
    free = room.free
    needs = {seq.id: room.missing(seq, seq.least_rows) for seq in chosen}
    for last in reversed(running):
        if sum(needs.values()) <= free or len(running) - len(preempted) == 1:  # alone each of them fits
            break
        preempted.append(last)
        needs.pop(last.id, None)
        free += room.held(last)
    spare = free - sum(needs.values())
    for seq in chosen:
        more = room.missing(seq, PAGE) - needs[seq.id] if seq.id in needs and seq.prefilled else 0
        drafts = more <= spare
        if seq.turn.drafts != drafts:
            seq.turn = replace(seq.turn, drafts=drafts)
        spare -= more * drafts
    return preempted
