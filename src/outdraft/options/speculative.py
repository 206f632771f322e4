"""How one request is drafted: what it asks for, what its engine holds, and what is in force for its text.

Speculative   asked by a request, and reported by its result  a field that is None is the engine's choice
Held          what an engine can be asked for by name
Settled       what the parts of a step read: which arm, which depth, which rule
"""

from dataclasses import dataclass, replace

from outdraft.options.base import DraftShape
from outdraft.options.checked import check_fields
from outdraft.options.errors import RequestError
from outdraft.options.ranges import MOST_NODES

FIXED = "fixed"  # the policy that any engine can follow for one request


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """Names, as a request gives them. Raises `RequestError` for a value of another type, or out of range."""

    method: str | None = None  # who drafts: one of the drafters that the engine holds; None: its policy chooses
    num_speculative_tokens: int | None = None  # the most of a round; 0 is plain decoding
    verifier: str | None = None  # the rule that judges
    policy: str | None = None  # "fixed": as many as num_speculative_tokens says in every round; else the engine's own

    def __post_init__(self) -> None:
        check_fields(self, of="speculative", error=RequestError)
        count = self.num_speculative_tokens
        if count is not None and not 0 <= count <= MOST_NODES:
            raise RequestError(
                f"num_speculative_tokens={count} of speculative is out of range: it must be at least 0 (plain "
                f"decoding) and at most {MOST_NODES}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What an engine holds, by name; empty for an engine whose parts were put together by hand."""

    methods: tuple[str, ...] = ()  # by arm
    shapes: tuple[DraftShape, ...] = ()  # what each of them proposes
    verifier: str = ""
    prefers_drawn: bool = True  # that rule accepts more of guesses that are drawn (`RuleMethod.prefers_drawn`)
    policy: str = ""
    num_speculative_tokens: int | None = None  # the most that the policy asks for
    watched: tuple[str, ...] = ()  # those that say how probable a token is, and are heard for a while (`suspicion.py`)

    def name_of(self, arm: int) -> str:
        """Who guesses; "" where the arm was given no name."""
        return self.methods[arm] if arm < len(self.methods) else ""

    @property
    def unasked(self) -> "Settled":
        """For a request that says nothing of speculation; no method: the policy chooses in every round."""
        chooses = len(self.methods) != 1 and self.policy != FIXED
        return Settled(
            told=Speculative(
                method=None if chooses else self.name_of(0) or None,
                num_speculative_tokens=self.num_speculative_tokens,
                verifier=self.verifier or None,
                policy=self.policy or None,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What a request's words mean in its engine. The default: nothing was asked for."""

    told: Speculative = Speculative()  # the settings in force; no method: the policy chooses in every round
    arm: int | None = None  # the only one that may guess
    resting: frozenset[int] = frozenset()  # the others, and whom the policy spares; they need not hear of the text
    depth: int | None = None  # of every guess, whatever the policy plans
    rule: str | None = None  # the rule in place of the engine's own

    def without(self, arms: frozenset[int]) -> "Settled":
        """These rest as well, unless the request has decided itself who guesses, or how deep."""
        if not arms or self.arm is not None or self.depth is not None:
            return self
        return replace(self, resting=self.resting | arms)


UNASKED = Settled()
