"""What slots spell: repeats become one token, then blanks are dropped; and the strings that are likeliest spelled so.

    slots   a a _ a b b      collapse    a _ a b      drop blanks    a a b       _: blank

A token that follows itself in the text needs a blank between. A string's probability is the sum over all alignments
that spell it. Graves et al., "Connectionist temporal classification", 2006,
https://doi.org/10.1145/1143844.1143891. Data in: log probabilities of each slot; data out: strings of tokens.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import exp, inf, log

String = tuple[int, ...]


def collapse(slots: Seq[int], blank: int) -> String:
    """Repeats first, blanks then: in the other order a text could not repeat a token."""
    kept = [token for i, token in enumerate(slots) if i == 0 or token != slots[i - 1]]
    return tuple(token for token in kept if token != blank)


def likeliest(slots: Seq[Mapping[int, float]], blank: int, beams: int) -> list[tuple[String, float]]:
    """The best strings that the slots spell, with log probabilities, best first.

    `slots[i]`: token -> log probability, for the tokens of slot i that are looked at; others count as impossible.
    `beams`: strings that are kept from slot to slot; with enough of them the sums are exact.
    """
    ends: dict[String, list[float]] = {(): [0.0, -inf]}  # log probability so far, ending with a blank | with a token
    for slot in slots:
        new: dict[String, list[float]] = {}

        def add(string: String, kind: int, amount: float, new: dict[String, list[float]] = new) -> None:
            held = new.setdefault(string, [-inf, -inf])
            held[kind] = _sum(held[kind], amount)

        for string, (by_blank, by_token) in ends.items():
            for token, amount in slot.items():
                if token == blank:
                    add(string, 0, _sum(by_blank, by_token) + amount)
                elif string and token == string[-1]:
                    add(string, 1, by_token + amount)  # the same token goes on
                    add((*string, token), 1, by_blank + amount)  # a blank stood between
                else:
                    add((*string, token), 1, _sum(by_blank, by_token) + amount)
        best = sorted(new.items(), key=lambda one: (-_sum(*one[1]), one[0]))
        ends = dict(best[:beams])
    found = [(string, _sum(*held)) for string, held in ends.items()]
    return [(string, amount) for string, amount in found if amount > -inf]


def _sum(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    high, low = max(a, b), min(a, b)
    return high if low == -inf else high + log(1 + exp(low - high))


@dataclass(frozen=True, slots=True, kw_only=True)
class StringTrie:
    """Nodes of a tree of strings; node 0 is what they stand behind. Parents precede children, the likelier sibling
    stands first."""

    tokens: list[int]  # of node 0: -1
    parents: list[int]
    masses: list[float]  # what the strings through a node weigh together


def trie_of(
    strings: Seq[tuple[String, float]], *, depth: int, nodes: int, token: float = 0.0, path: float = 0.0
) -> StringTrie:
    """The tree of strings with log probabilities, cut at `depth`; its `nodes` heaviest nodes.

    Strings that begin alike share nodes, and none comes twice. `token`, `path`: nothing hangs below a node that has
    less than this share of its parent's mass, or of all.
    """
    masses: dict[String, float] = {(): 0.0}
    for string, amount in strings:
        masses[()] += exp(amount)
        for end in range(1, min(depth, len(string)) + 1):
            masses[string[:end]] = masses.get(string[:end], 0.0) + exp(amount)
    return _heaviest(masses, nodes, token, path)


def chain_of(
    slots: Seq[tuple[int, float]], blank: int, *, depth: int, nodes: int, token: float = 0.0, path: float = 0.0
) -> StringTrie:
    """The chain that one token of each slot spells; `slots`: tokens with log probabilities.

    A node has the probability of the slots up to the first one at which its string is spelled. The rest is as in
    `trie_of`.
    """
    masses: dict[String, float] = {(): 1.0}
    total = 0.0
    for count, (_, amount) in enumerate(slots, 1):
        total += amount
        if len(string := collapse([each for each, _ in slots[:count]], blank)) <= depth:
            masses.setdefault(string, exp(total))
    return _heaviest(masses, nodes, token, path)


def _heaviest(masses: dict[String, float], nodes: int, token: float, path: float) -> StringTrie:
    """The tree of so many of these strings; every beginning of a string is one of them and weighs at least as much."""
    whole, kept = masses[()], list[String]()
    open_below: set[String] = {()}
    for string in sorted((one for one in masses if one), key=lambda one: (-masses[one], len(one), one)):
        if len(kept) == nodes:
            break
        if string[:-1] not in open_below:
            continue
        kept.append(string)
        if masses[string] >= token * masses[string[:-1]] and masses[string] >= path * whole:
            open_below.add(string)
    place = {(): 0} | {string: i for i, string in enumerate(kept, 1)}
    return StringTrie(
        tokens=[-1, *(string[-1] for string in kept)],
        parents=[-1, *(place[string[:-1]] for string in kept)],
        masses=[whole, *(masses[string] for string in kept)],
    )
