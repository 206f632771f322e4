"""What callers get of a request: `Chunk`, what one step added, and `Result`, the whole of it."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

from outdraft.core.draft_tree import DraftTree
from outdraft.core.events import Source
from outdraft.core.logprobs import TokenLogprobs
from outdraft.engine.stats import RequestStats
from outdraft.options.errors import OutdraftError
from outdraft.options.shown import shown
from outdraft.options.speculative import Speculative


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one step added. `text` may lag behind `token_ids` (half a character, a possible stop string).

    A codec without text gives `pieces` in its place, one for each token and one for the end; they join to the whole.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    sources: tuple[Source, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # the stop string or the stop token id that ended it
    stats: RequestStats | None = field(default=None, repr=False)  # of the whole text, on its last chunk
    speculative: Speculative | None = field(default=None, repr=False)  # as in `Result`, on its last chunk
    index: int = 0  # which of the texts that were asked for (`SamplingParams(n=3)`)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None  # on the text's first chunk, as in `Result`
    draft_tree: DraftTree | None = field(default=None, repr=False)  # of the last round in it, if asked for
    pieces: tuple[Any, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """A finished request. `sources[i]` says where `token_ids[i]` came from; ids include the one that ended the text.

    Of a request for several texts (`SamplingParams(n=3)`) this is the first; `outputs` has all of them. `prompt` and
    `outputs[0].text` are where vLLM's users look.
    """

    text: str
    token_ids: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    sources: tuple[Source, ...]
    logprobs: tuple[TokenLogprobs, ...] | None  # None unless asked for
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None  # the prompt's, None for its first token
    finish_reason: str | None  # "stop", "length", "timeout" or "error"
    stop_reason: str | int | None = None  # the stop string or the stop token id that ended it
    error: OutdraftError | None = None  # what ended the request, if anything went wrong; the rest is what was written
    variant: str  # how the weights were rounded that wrote it: "", "int4-g32-mixed", ...
    lossless: bool  # whether its distribution is the target's: False under a lossy verifier
    stats: RequestStats = field(repr=False)
    speculative: Speculative = field(default=Speculative(), repr=False)  # how it was drafted; what was in force
    num_cached_tokens: int = 0  # of the prompt: they were taken over from an earlier text
    draft_tree: DraftTree | None = field(default=None, repr=False)  # of the last round, if `return_draft_tree=True`
    prompt: str | None = None  # the prompt, if it was given as text
    content: Any = field(default=None, repr=False)  # what a codec without text decodes, as an image; `text` is "" then
    index: int = 0  # among the texts of one request
    others: tuple["Result", ...] = field(default=(), repr=False)  # the further texts of one request

    def __repr__(self) -> str:
        more = "" if self.error is None else f", error={shown(self.error)}"
        more += f", and {len(self.others)} more" if self.others else ""
        return f"Result({shown(self.text)}, {len(self.token_ids)} tokens, finish_reason={self.finish_reason!r}{more})"

    @property
    def outputs(self) -> tuple["Result", ...]:
        """All texts of the request, this one first."""
        return (self, *self.others)

    @property
    def metrics(self) -> dict[str, Any]:
        """`stats` in the shape that vLLM's users know."""
        return self.stats.as_metrics()


def all_whole(results: Seq[Result]) -> list[Result]:
    """The same results, for callers that need all of them: raises the first error of any."""
    for result in results:
        if result.error is not None:
            raise result.error
    return list(results)
