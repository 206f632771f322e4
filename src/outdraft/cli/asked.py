"""What a bench was asked to measure, read and loaded: the same for texts one by one and for many at once."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outdraft.bench.lineup import Rival
from outdraft.options.params import SamplingParams

if TYPE_CHECKING:
    from outdraft.bench.shelf import Shelf
    from outdraft.bench.subject import Subject
    from outdraft.bench.suites.prompt import Prompt
    from outdraft.engine.llm import LLM


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`chosen`: the methods that were named; empty: whatever is usual. `strict`: one that does not fit is an error."""

    subject: "Subject"
    shelf: "Shelf"
    prompts: "Seq[Prompt]"
    params: SamplingParams
    rounds: int
    chosen: Seq[Rival]
    strict: bool

    def join(self, rival: Rival) -> "LLM":
        """The method's engine over the target's weights. Raises `OutdraftError` if it does not fit."""
        from outdraft.bench.drafts import join_made

        return join_made(self.subject.plain, rival, self.shelf, self.subject.name)
