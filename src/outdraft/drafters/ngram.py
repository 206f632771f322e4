"""Look the next tokens up in the text itself: find the last tokens earlier in prompt or output, copy what followed.

Saxena, "Prompt lookup decoding", 2023, https://github.com/apoorvumang/prompt-lookup-decoding.
Longest suffix first, latest match first; short continuations are kept. Data in: token ids; data out: a deterministic
chain, or a small trie of several continuations. No model, no state but an index of the text.
"""

from dataclasses import dataclass, field

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.shared.look_up.lookup_drafter import LookupDrafter, check_ngrams
from outdraft.drafters.shared.look_up.ngram_index import NgramIndex
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramOptions:
    """How to look up. Raises `ConfigError` naming what is out of range."""

    # the longest end of the text that is looked up, in tokens; it is tried first
    max_ngram: int = field(
        default=3,
        metadata={
            "aliases": ("prompt_lookup_max", "ngram_prompt_lookup_max", "max_matching_ngram_size", "max_ngram_size")
        },
    )
    # the shortest end of the text that is looked up, in tokens; 2 or 3 drafts less often and is right more often
    min_ngram: int = field(
        default=1, metadata={"aliases": ("prompt_lookup_min", "ngram_prompt_lookup_min", "ngram_match_min")}
    )
    width: int = 1  # how many distinct continuations are merged into one tree; 1 is a chain
    # whether a copy that reaches the end of the text goes on with its own guess, which follows a text that repeats
    # itself
    wrap: bool = True

    def __post_init__(self) -> None:
        check_ngrams(self.min_ngram, self.max_ngram, self.width)


METHOD: DrafterMethod[NgramOptions, TargetPort, LookupDrafter] = DrafterMethod(
    name="ngram",
    also_called=("ngram_gpu",),
    summary="look the last tokens up in prompt and output, copy what followed (no model)",
    build=lambda options, port: LookupDrafter(
        lambda seq: NgramIndex(options.min_ngram, options.max_ngram, wrap=options.wrap), options.width
    ),
    options=NgramOptions,
    paper=Paper(
        title="Prompt lookup decoding", year=2023, link="https://github.com/apoorvumang/prompt-lookup-decoding"
    ),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 3}},
)
