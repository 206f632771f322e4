"""`POST /v1/completions`: a text, or token ids, and how it may go on."""

from typing import Annotated

from pydantic import Field

from outdraft.engine.callers.prompts import Prompt
from outdraft.options.params import SamplingParams
from outdraft.server.errors import wrong_field
from outdraft.server.schema.sampling import SamplingFields

_Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class CompletionRequest(SamplingFields):
    """One prompt or several, as texts or as token ids."""

    prompt: str | _Ids | list[str] | list[_Ids]
    max_tokens: Annotated[int, Field(ge=0)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    best_of: int | None = None

    def prompts(self) -> list[Prompt]:
        """Each in the form that the engine reads."""
        match self.prompt:
            case str():
                return [self.prompt]
            case [int(), *_]:
                return [{"prompt_token_ids": self.prompt}]
            case []:
                raise wrong_field("prompt=[] is empty: send a text, token ids, or several of either")
        return [one if isinstance(one, str) else {"prompt_token_ids": one} for one in self.prompt]

    def params(self) -> SamplingParams:
        """Raises `ApiError` or `RequestError` for what does not go together."""
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise wrong_field(
                f"best_of={self.best_of} differs from n: every text that is written is sent, so leave best_of out"
            )
        if self.max_tokens == 0 and not self.echo:
            raise wrong_field("max_tokens=0 writes nothing: ask for one token at least, or set echo")
        if self.stream and self.echo and self.logprobs is not None and self.in_force("n") > 1:
            raise wrong_field(
                f"n={self.n} with echo and logprobs is for a whole reply, because in a stream the first text alone "
                "gives the prompt's: leave one out"
            )
        wanted = self.logprobs if self.echo and self.prompt_logprobs is None else self.prompt_logprobs
        limit = max(1, self.in_force("max_tokens"))  # the engine writes one token at least
        return self.sampling(max_tokens=limit, logprobs=self.logprobs, prompt_logprobs=wanted)
