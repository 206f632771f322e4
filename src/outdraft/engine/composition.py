"""What an engine steps with: its parts, and what stands around them only while a request asks for it.

around the target      guidance, while an unfinished request is guided
in the rule's place    the rules that requests have named, for the passes that they are in
around plug-ins        the shield, where the engine isolates faults and a drafter guesses at all
"""

from collections.abc import Iterable
from dataclasses import replace

from outdraft.core.sequence import Sequence
from outdraft.decode.asked import RulesByRequest
from outdraft.decode.guidance import guides
from outdraft.decode.parts import Parts
from outdraft.decode.suspicion import Suspicion, shielded
from outdraft.engine.requests.prepare import Terms
from outdraft.options.errors import CapabilityError


class Composition:
    """`used`: the parts of the next step. `terms`: what requests are held to, also while no parts are held."""

    used: Parts
    terms: Terms

    def __init__(self, ends: frozenset[int]) -> None:
        self._ends = ends
        self._suspicion: Suspicion | None = None  # of drafters that guess, as long as the engine lives
        self._guided = set[int]()  # unfinished requests that are guided
        self._given: Parts | None = None
        self._guiding: Parts | None = None

    @property
    def given(self) -> Parts:
        """The parts as they were given. Raises `CapabilityError` while none are held."""
        if self._given is None:
            raise CapabilityError(
                "no weights are held, because the last change of weights failed: the next request tries to load them"
            )
        return self._given

    @property
    def is_empty(self) -> bool:
        return self._given is None

    def hold(self, parts: Parts, *, isolates: bool) -> None:
        """Step with these from now on."""
        rules = RulesByRequest(parts.verifier, parts.verifier.lossless)
        used = replace(parts, named_rules=rules)
        if isolates and parts.guesses:
            self._suspicion = self._suspicion or Suspicion()
            used = shielded(used, self._suspicion)
        self._bare, self._given, self._guiding = used, parts, None
        self.terms = Terms(
            vocab_size=parts.target.vocab_size,
            max_len=parts.target.max_len,
            ends=self._ends,
            is_guided=parts.guide is not None or guides(parts.target),
            capacity=parts.room.capacity,
            cuts=parts.room.cuts,
            held=parts.held,
            unasked=parts.held.unasked,
            rule=parts.verifier,
            rules=rules,
        )
        self._choose()

    def let_go(self) -> None:
        """Hold no parts, until others are given."""
        self.terms = replace(self.terms, capacity=None, cuts=False)
        self._given = self._guiding = None
        del self.used, self._bare

    def keeps(self, seq: Sequence) -> bool:
        """Whether the rule that judges this sequence keeps the target's distribution."""
        rule = seq.settled.rule
        return self.terms.rule.lossless if rule is None else self.terms.rules.of(rule).lossless

    def welcome(self, seqs: Iterable[Sequence]) -> None:
        """These wait from now on."""
        if guided := {seq.id for seq in seqs if seq.request.params.guides}:
            self._guided |= guided
            self._choose()

    def forget(self, seq: Sequence) -> None:
        """It is over, and its memory is free."""
        if seq.id in self._guided:
            self._guided.remove(seq.id)
            self._choose()

    def _choose(self) -> None:
        if self.is_empty:
            return
        if self._guided and self._guiding is None and self._bare.guide is not None:
            self._guiding = self._bare.guide(self._bare)
        self.used = self._guiding if self._guided and self._guiding is not None else self._bare
