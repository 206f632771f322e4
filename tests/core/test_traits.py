"""What a drafter can do besides its verbs is found through all the drafters that it asks."""

from outdraft.core.drafter import Traits, arm_of, forget, inner
from outdraft.core.target import Needs
from outdraft.core.weights import Weights


class Stub:
    def __init__(self, *asked, size=0, taps=(), **traits):
        self.num_forgotten = 0
        self.needs = Needs(taps=taps)
        weights = (Weights(kernels="avx2", variant="", bits=16, pass_bytes=size),) if size else ()
        self.traits = Traits(inner=asked, weights=weights, forget=self._forget, **traits)

    def _forget(self):
        self.num_forgotten += 1

    def propose(self, seqs, budgets):
        return [f"guess of {seq}" for seq in seqs]


def test_wrappers_hand_nothing_on_and_everybody_is_found():
    deep, beside = Stub(size=3), Stub(size=4)
    outer = Stub(Stub(deep), beside)
    assert list(inner(outer)) == [outer, outer.traits.inner[0], deep, beside]
    forget(outer)
    assert [one.num_forgotten for one in inner(outer)] == [1, 1, 1, 1]
    assert [weights.pass_bytes for one in inner(outer) for weights in one.traits.weights] == [3, 4]


def test_only_a_drafter_that_peeks_itself_is_looked_at():
    assert arm_of(Stub(Stub(peeks=True)), "a").peek is None
    assert arm_of(Stub(peeks=True), "a").peek("text", None) == "guess of text"


def test_who_reads_the_targets_states_listens():
    assert arm_of(Stub(taps=(3,)), "a").listens and not arm_of(Stub(), "a").listens


def test_what_could_be_held_on_fewer_bits():
    def shrinks(**changes):
        return Weights(**{"kernels": "avx2", "variant": "", "bits": 16, "pass_bytes": 1, **changes}).can_shrink

    assert shrinks() and shrinks(variant="int8", bits=8, rounded_at_load=True)
    assert not shrinks(kernels="pytorch") and not shrinks(variant="int8", bits=8)
    assert not shrinks(variant="int4", bits=4, rounded_at_load=True)
