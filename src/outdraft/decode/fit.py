"""Guesses for which memory has no room are cut, those of the last in order first.

    rows   P d d d d d | P d d d | P d d d d      pages that all of it wants beyond those that are there: 4, free: 3
    fits   P d d d d d | P d d d | P d d          the last gets what is left, in the pages that it has and those free

A guess is cut behind a number of nodes which is known before any of them is looked at, and a parent precedes its
children: so whether a node stays does not depend on what was drawn for it, and no distribution changes. Dropping a
whole guess for its length would change one where a drafter stops early after some tokens and not after others. A guess
whose nodes see others than their ancestors, or bring vectors, cannot be cut and is dropped: its size does not depend on
its tokens.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from operator import is_

from torch import Tensor

from outdraft.core.decisions import Decision
from outdraft.core.draft import Draft, chain
from outdraft.core.room import Room
from outdraft.core.sequence import Sequence
from outdraft.options.foreign import anything_but_an_interrupt


def fit(seqs: Seq[Sequence], decisions: list[Decision], room: Room) -> list[Decision]:
    """The decisions, with what memory has room for of their guesses; the same where that is all of them."""
    try:
        drafts = what_fits(seqs, [one.draft for one in decisions], room)
        fitting = [one.cut(draft) for draft, one in zip(drafts, decisions, strict=True)]
    except anything_but_an_interrupt():  # one is no guess at all: the pass finds out whose
        return decisions
    return decisions if all(map(is_, fitting, decisions)) else fitting


def what_fits(seqs: Seq[Sequence], guesses: Seq[Draft], room: Room) -> list[Draft]:
    """The guesses, for each sequence of a pass in its order, or what memory has room for. Rows without them do fit."""
    if room.capacity is None or all(guess.num_nodes == 1 for guess in guesses):
        return list(guesses)
    wanted = [room.missing(seq, _num_rows(seq, guess.num_nodes)) for seq, guess in zip(seqs, guesses, strict=True)]
    if sum(wanted) <= room.free:
        return list(guesses)
    least = [room.missing(seq, _num_rows(seq, 1)) for seq in seqs]
    spare = room.free - sum(least)
    found: list[Draft] = []
    for seq, guess, own in zip(seqs, guesses, least, strict=True):
        num_nodes = guess.num_nodes
        while num_nodes > 1 and room.missing(seq, _num_rows(seq, num_nodes)) - own > spare:
            num_nodes -= 1
        found.append(_cut(guess, num_nodes))
        spare -= room.missing(seq, _num_rows(seq, found[-1].num_nodes)) - own
    return found


def _num_rows(seq: Sequence, num_nodes: int) -> int:
    """Of a sequence in the pass, whose guess has so many nodes."""
    return min(seq.num_unread, seq.turn.max_chunk) + num_nodes * seq.reaches(seq.turn.max_chunk)


def _cut(guess: Draft, num_nodes: int) -> Draft:
    """Its first nodes, or the pending token alone where others would not be a guess."""
    if num_nodes < guess.num_nodes and (num_nodes == 1 or guess.mask is not None or guess.embeds is not None):
        return chain(guess.tokens[:1])
    return first_nodes(guess, num_nodes)


def first_nodes(draft: Draft, num_nodes: int) -> Draft:
    """The draft without its later nodes, which is one again because parents precede their children."""
    if num_nodes == draft.num_nodes:
        return draft
    resume = draft.resume
    return replace(
        draft,
        tokens=draft.tokens[:num_nodes],
        parents=draft.parents[:num_nodes],
        q=_first(draft.q, num_nodes) if draft.drawn_from is None else draft.q,  # whose further rows stand below the N
        drawn_from=_first(draft.drawn_from, num_nodes),
        roles=_first(draft.roles, num_nodes),
        resume=None if resume is None else replace(resume, hidden=resume.hidden[:num_nodes]),
        confidence=_first(draft.confidence, num_nodes),
        continuation=None,
    )


def _first(rows: Tensor | None, count: int) -> Tensor | None:
    return None if rows is None else rows[:count]
