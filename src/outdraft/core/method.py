"""The description of a plug-in: typed facts, so that the engine never looks up one of its options by name.

    DrafterMethod   build(options, port) -> Drafter     shape_of, forms, arms, describe     who guesses
    RuleMethod      build(options)       -> Verifier    judges, prefers_drawn, soft, ...    what is kept of a guess
    PolicyMethod    build(options, arms) -> Policy                                          how much is guessed

`options` is a frozen dataclass with a default for every field. What others must know of its fields is a base class in
`options/base.py`. `CONTRACT` counts the changes that a plug-in of another package has to follow.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from outdraft.options.base import DraftShape, PolicyOptions

if TYPE_CHECKING:  # these need torch, which would delay `outdraft --help`
    from outdraft.core.drafter import Drafter
    from outdraft.core.policy import Arm, Policy
    from outdraft.core.verifier import Verifier

CONTRACT = 3
CHANGES = {
    2: "Method(kind=..., shapes=...) of outdraft.core.registry became DrafterMethod(shape_of=...), "
    "RuleMethod(judges=...) and PolicyMethod(...) of outdraft.core.method; a drafter's ahead() returns a Continuation "
    "or None for each draft, and what else it can do is in its traits; TargetPort has parts: "
    "port.facts.vocab_size, port.layers.run, port.rows.tentative",
    3: "outdraft.core.options is outdraft.options.base, outdraft.core.errors outdraft.options.errors, and TargetPort "
    "is in outdraft.models.networks.port (docs/moved.md has all modules)",
}

Kind = Literal["drafter", "verifier", "policy"]


class IsDataclass(Protocol):
    """Any dataclass, as a type that checkers know."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Options = TypeVar("Options", bound=IsDataclass)
Pacing = TypeVar("Pacing", bound=PolicyOptions)
Port = TypeVar("Port")  # the door to the target, which this layer does not know
Built = TypeVar("Built", bound="Drafter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Where a method was published."""

    title: str
    year: int
    link: str


def arxiv(number: str, title: str) -> Paper:
    """A paper on arXiv, whose number begins with its year and month: arxiv("2211.17192", "Fast inference ...")."""
    return Paper(title=title, year=2000 + int(number[:2]), link=f"https://arxiv.org/abs/{number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Generic[Options]):
    """What the three kinds of plug-in have in common."""

    kind: ClassVar[Kind]
    name: str
    summary: str
    options: type[Options]
    paper: Paper | None = None
    contract: int | None = None  # the version that it was written for; a plug-in of another package must name it

    @property
    def lossless(self) -> bool:
        """Whether the output keeps the target's distribution, with default options."""
        return True


def _never(options: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterMethod(Method[Options], Generic[Options, Port, Built]):
    """A plug-in that guesses: how it is built, what it proposes, and what it holds."""

    kind: ClassVar[Kind] = "drafter"
    build: Callable[[Options, Port], Built]
    shape_of: Callable[[Options], DraftShape] = lambda options: "chain"  # what it proposes with these options
    forms: Mapping[DraftShape, Mapping[str, Any]] = field(default_factory=dict)  # options for each of several shapes
    arms: "Callable[[Built], tuple[Arm, ...]]" = lambda drafter: ()  # whom a policy may choose among; (): itself
    also_called: tuple[str, ...] = ()  # names that a peer's configuration has for it
    quotes_alone: bool = False  # it copies from the references of a request, and has nothing to guess without them
    # what it chose itself, for the resolved configuration
    describe: Callable[[Built], Mapping[str, Any]] = lambda drafter: {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMethod(Method[Options], Generic[Options]):
    """What is kept of a guess."""

    kind: ClassVar[Kind] = "verifier"
    build: "Callable[[Options], Verifier]"
    judges: tuple[DraftShape, ...] = ("chain",)
    prefers_drawn: bool = False  # it accepts more of guesses that are drawn than of the likeliest ones
    soft: Callable[[Options], bool] = _never  # it judges greedy requests by their distribution at temperature 1
    reads_confidence: Callable[[Options], bool] = _never  # it reads `Draft.confidence`, so drafters are asked for it

    @property
    def lossless(self) -> bool:
        """A rule says so itself, once it is built."""
        return self.build(self.options()).lossless


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMethod(Method[Pacing], Generic[Pacing]):
    """A plug-in that says how much is guessed."""

    kind: ClassVar[Kind] = "policy"
    build: "Callable[[Pacing, Seq[Arm]], Policy]"
