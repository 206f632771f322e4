"""The marks before an answer: the ids with which all chats of a training end, and how many served prompts do so too.

    <|im_end|>\\n<|im_start|>assistant\\n      what a template puts behind the last message, whatever was asked

Another template, or none, ends its prompts otherwise, and the draft was trained behind these alone. What prompts begin
with is not compared: a system message of one's own is no fault. Data in: prompts; data out: marks, and a finding.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import sqrt

from outdraft.adapt.evidence import Evidence
from outdraft.adapt.kinds import Finding, Kind

_SHARE = 0.9  # of the training's prompts that have the marks
_MOST = 16  # ids of them
_THRESHOLD = 0.25  # of served prompts without them, beyond those of the training
_LEAST = 20  # prompts


def common_end(prompts: Iterable[Seq[int]]) -> tuple[int, ...]:
    """The longest end that 9 of 10 prompts share, at most 16 ids; () where there is none."""
    ends = [tuple(reversed(one[-_MOST:])) for one in prompts]
    least, end = _SHARE * len(ends), tuple[int, ...]()
    while ends:
        known = Counter(one[: len(end) + 1] for one in ends if len(one) > len(end))
        longer, count = known.most_common(1)[0] if known else ((), 0)
        if count < least or not count:
            break
        end, ends = longer, [one for one in ends if one[: len(longer)] == longer]
    return end[::-1]


@dataclass(slots=True, kw_only=True)
class ServedMarks:
    """Prompts that were served, and how many ended with the marks."""

    marks: tuple[int, ...]
    prompts: int = 0
    marked: int = 0

    def add(self, prompt: Seq[int]) -> None:
        self.prompts += 1
        self.marked += tuple(prompt[-len(self.marks) :]) == self.marks

    def finding(self) -> Finding | None:
        """None without marks, or of fewer than 20 prompts."""
        if not self.marks or self.prompts < _LEAST:
            return None
        missed, n = self.prompts - self.marked, self.prompts
        evidence = Evidence(
            effect=missed / n - (1 - _SHARE), standard_error=sqrt(_SHARE * (1 - _SHARE) / n), threshold=_THRESHOLD
        )
        return Finding(
            kind=Kind.TEMPLATE,
            evidence=evidence,
            sentence=f"{missed} of {n} prompts do not end with the marks that chats ended with in training: serve by "
            "the chat template of its training, because learning would bend the draft to the wrong one.",
        )
