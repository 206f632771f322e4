"""`Parts`: what a step is made of, and who works beside the target."""

from collections.abc import Callable
from dataclasses import dataclass, field

from outdraft.core.adoption import Adoption
from outdraft.core.drafter import Drafter, Traits, inner
from outdraft.core.policy import Policy
from outdraft.core.room import Room, Unbounded
from outdraft.core.target import Target
from outdraft.core.verifier import Verifier
from outdraft.decode.executor import Executor, Serial
from outdraft.options.speculative import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The four parts of a step. What stands around them is there only while a request asks for it."""

    target: Target
    drafter: Drafter
    verifier: Verifier
    policy: Policy
    soft: bool = False  # the rule judges greedy requests by their distribution at temperature 1 (`RuleMethod.soft`)
    reads_confidence: bool = False  # the rule reads how sure the drafter is of its guesses
    executor: Executor = field(default_factory=Serial)
    room: Room = field(default_factory=Unbounded)  # the target's memory, for the planning of passes
    held: Held = field(default_factory=Held)  # what requests may ask for by name
    named_rules: Verifier | None = None  # judges in place of `verifier` where a request names a rule of its own
    guide: "Callable[[Parts], Parts] | None" = None  # the same parts, whose target guides the requests that ask for it
    traits: Traits = field(init=False)  # the drafter's, asked once
    guesses: bool = field(init=False)  # False: plain decoding, where neither drafter nor policy is asked anything
    adoption: Adoption | None = field(init=False)  # how its weights are replaced, of the first that can
    has_peeking: bool = field(init=False)  # the drafter, or one that it asks, may guess what a constraint forbids

    def __post_init__(self) -> None:
        held = [one.traits for one in inner(self.drafter)]  # the drafter's own first
        object.__setattr__(self, "traits", held[0])
        object.__setattr__(self, "guesses", held[0].guesses)
        object.__setattr__(self, "adoption", next((one.adopt for one in held if one.adopt is not None), None))
        object.__setattr__(self, "has_peeking", any(one.peeks for one in held))
