"""A request: token ids and sampling settings. A codec has turned text into ids before; the engine sees only ids."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from torch import Tensor

from outdraft.core.constraint import Constraint
from outdraft.core.logprobs import LogprobsMode
from outdraft.core.once import Once
from outdraft.options.params import SamplingParams
from outdraft.options.speculative import Speculative


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and its settings."""

    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    num_speculative_tokens: int | None = None  # per request: overrides the policy; 0 turns speculation off
    speculative: Speculative | None = None  # who drafts it, by which rule, and how much
    references: tuple[tuple[int, ...], ...] = ()  # texts that the answer may copy from, for drafters that look up
    prompt_positions: tuple[int, ...] | None = None  # what the model is given instead of each token's index (images)
    prompt_embeds: Tensor | None = None  # [P, D] vectors in place of token embeddings; NaN rows: use the token
    constraint: Callable[[], Constraint] | None = None  # makes the constraint of one text: which tokens may follow
    negative_prompt_token_ids: tuple[int, ...] | None = None  # what guidance leads away from; see `negative_ids`
    logprobs_mode: LogprobsMode = "raw_logprobs"  # what `TokenLogprobs.logprob` shows
    cache_salt: str | None = None  # what one request leaves for later ones is for those of the same salt alone
    priority: int = 0  # who waits joins in this order, the lower first
    timeout: float | None = None  # seconds after it was asked for; then it ends with what it has
    return_draft_tree: bool = False  # whether its pieces report the draft of their round, and what became of it
    adapt: bool | None = None  # whether a draft that learns may learn from it (`LLM(adapt=)`); None: as the engine says
    resume_token_ids: tuple[tuple[int, ...], ...] = ()  # of each text: what was written before it was cut off elsewhere

    once: Once = field(init=False, default_factory=Once, repr=False, compare=False)  # what is made for all its texts

    def singles(self) -> "list[Request]":
        """One request for each of the texts that are asked for; what is made once, they share."""
        if self.params.n == 1:
            return [self]
        cut = self.resume_token_ids or ((),) * self.params.n
        texts = [
            replace(self, params=one, resume_token_ids=(ids,) if ids else ())
            for one, ids in zip(self.params.singles(), cut, strict=True)
        ]
        for one in texts:
            object.__setattr__(one, "once", self.once)
        return texts

    @property
    def most_drafted(self) -> int | None:
        """Its own number of draft tokens, wherever it stands; None: the policy's."""
        if self.num_speculative_tokens is not None or self.speculative is None:
            return self.num_speculative_tokens
        return self.speculative.num_speculative_tokens

    @property
    def negative_ids(self) -> tuple[int, ...]:
        """What stands in the prompt's place in the second half of guidance: without a negative prompt, the prompt's
        last token alone (Sanchez et al. 2023)."""
        given = self.negative_prompt_token_ids
        return self.prompt_token_ids[-1:] if given is None else given


def share(requests: Seq[Request]) -> None:
    """Requests of the same settings make once, for all of them, what they make once."""
    first: dict[int, Once] = {}
    for one in requests:
        object.__setattr__(one, "once", first.setdefault(id(one.params), one.once))
