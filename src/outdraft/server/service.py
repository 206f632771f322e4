"""The engine as the endpoints see it: it takes a request while the server is ready, within the operator's limits, and
knows what is under way.

One key's requests leave nothing for another key's: the cache salt of a request is its key's, with its own behind it.
"""

import asyncio
from collections.abc import Sequence as Seq
from dataclasses import replace
from time import time
from typing import Any, Literal
from uuid import uuid4

from outdraft.codecs.text import TextCodec
from outdraft.core.drafter import inner
from outdraft.engine.between_steps import listen
from outdraft.engine.callers.answers import Answers
from outdraft.engine.callers.prompts import Prompt
from outdraft.engine.llm import LLM
from outdraft.engine.page_events import page_events
from outdraft.engine.requests.beside import check_size
from outdraft.options.errors import CapabilityError, RequestError
from outdraft.options.limits import ALL_REFERENCES
from outdraft.options.params import SamplingParams
from outdraft.server.errors import ApiError, draining, wrong_field
from outdraft.server.metrics import AdaptInstruments, EngineWatch, Instruments
from outdraft.server.parsers.found import Formats, find_formats
from outdraft.server.reading import LongTexts
from outdraft.server.schema.sampling import SamplingFields
from outdraft.server.settings import ServerSettings


class Service:
    """One for a server."""

    def __init__(self, llm: LLM, settings: ServerSettings) -> None:
        self.llm, self.settings = llm, settings
        self.state: Literal["ready", "draining"] = "ready"
        self.started = int(time())
        self.instruments = Instruments(self.name)
        self.adapt_instruments = (
            None if llm.adapting is None else AdaptInstruments(self.instruments.registry, self.name, llm.adapting)
        )
        self.stop_listening = listen(llm, lambda engine: EngineWatch(self.instruments, engine))
        template = None if llm.tokenizer is None else llm.tokenizer.chat_template
        self.formats: Formats = find_formats(settings.tool_call_parser, settings.reasoning_parser, template)
        self._quotes = any(one.traits.quotes for one in inner(llm.engine.parts.drafter))
        self.reading = LongTexts(llm.config["max_model_len"])
        self.page_events = page_events(llm) if settings.kv_events else None
        self.num_under_way = 0  # requests that are being answered
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def name(self) -> str:
        return self.settings.served_model_name[0]

    @property
    def load(self) -> dict[str, float]:
        """Texts that run, texts that wait, and the share of the key/value cache that is in use."""
        gauges = {
            "num_requests_running": self.instruments.running,
            "num_requests_waiting": self.instruments.waiting,
            "kv_cache_usage_perc": self.instruments.cache_usage,
        }
        return {name: next(iter(gauge.collect())).samples[0].value for name, gauge in gauges.items()}

    @property
    def codec(self) -> TextCodec:
        """The model's tokenizer. Raises `RequestError` where it has none."""
        return self.llm.get_tokenizer()

    def check_model(self, name: str | None) -> None:
        """Raise `ApiError` for a model that is not served here."""
        if name is not None and name not in (*self.settings.served_model_name, self.settings.model_path):
            known = ", ".join(self.settings.served_model_name)
            raise ApiError(
                404,
                f"the model {name!r:.100} is not served here; served: {known}",
                param="model",
                code="model_not_found",
            )

    async def open(
        self, body: SamplingFields, prompts: Seq[Prompt], params: SamplingParams, salt: str, **more: Any
    ) -> Answers:
        """Queue the request. The caller calls `close` when nothing more is wanted."""
        if self.state != "ready":
            raise draining("takes no new request")
        self.check_model(body.model)
        self._check_size(prompts, params)
        most, asked_for = self.settings.max_tokens, params.max_tokens
        self.num_under_way += 1
        self._idle.clear()
        try:
            asked = {**body.beside(), **more}
            self._check_references(body, asked["references"])
            own = asked["cache_salt"]
            asked["cache_salt"] = f"{salt}/{own or ''}" if salt or own else None
            asked["timeout"] = _least(self.settings.timeout, asked["timeout"])
            prompts = [await self._short(one, "prompt") for one in prompts]
            asked["negative_prompt"] = await self._short(asked["negative_prompt"], "negative_prompt")
            asked["references"] = [await self._short(one, "") for one in asked["references"] or ()]
            limited = params if most is None else replace(params, max_tokens=_least(most, asked_for))
            return await self.llm.open(
                prompts, limited, streams=bool(body.stream), stream_interval=self._interval(body), **asked
            )
        except BaseException as error:
            self._end()
            if isinstance(error, CapabilityError) and self.state != "ready":  # it ended while the prompt was read
                raise draining("takes no new request") from error
            if isinstance(error, RequestError) and "max_tokens" in str(error) and _least(most, asked_for) != asked_for:
                raise RequestError(f"{error}; here an answer has at most {most} (the server's --max-tokens)") from error
            raise

    def close(self, answers: Answers) -> None:
        answers.leave()
        self._end()

    async def drain(self) -> None:
        """Take nothing new, and wait for what is under way; cancel it when its time is over."""
        self.state = "draining"
        try:
            await asyncio.wait_for(self._idle.wait(), self.settings.drain_timeout)
        except TimeoutError:
            await asyncio.to_thread(self.llm.close)  # which waits for the step under way

    @property
    def speculation(self) -> dict[str, Any]:
        """Who drafts, which rule judges, who decides how much: names, and no places of this machine."""
        config = self.llm.config
        drafter, policy = config["drafter"], config["policy"]
        return {
            "method": drafter["name"],
            "methods": [*drafter.get("arms", {drafter["name"]: None})],
            "num_speculative_tokens": policy.get("num_speculative_tokens"),
            "verifier": config["verifier"]["name"],
            "policy": policy["name"],
        }

    async def _short(self, text: Any, param: str) -> Any:
        """A text that is long as its ids, which were read in their turn. `param`: what it is, if the context must hold
        it."""
        if not isinstance(text, str) or not self.reading.is_long(text):
            return text
        if param:
            self.reading.check(text, self.llm.tokenizer, param)
        ids = await self.reading.read(len(text), self.llm.encode, text)
        return {"prompt_token_ids": list(ids)} if param == "prompt" else list(ids)

    def _interval(self, body: SamplingFields) -> int:
        """Tokens of a streamed chunk; 0: what each pass has written."""
        if body.stream_interval is None:
            return self.settings.stream_interval
        if not body.stream:
            raise wrong_field("stream_interval needs stream: true")
        return body.stream_interval

    def _check_references(self, body: SamplingFields, references: Seq[str] | None) -> None:
        """Refuse them where no drafter reads them."""
        if references and not self._quotes:
            name = "references" if body.references else "prediction"
            methods = ", ".join(self.speculation["methods"])
            raise wrong_field(
                f"{name}: what drafts here ({methods}) copies from no text beside the prompt: leave it out"
            )
        check_size("references", sum(map(len, references or ())), ALL_REFERENCES, "characters")  # before they are read

    def _check_size(self, prompts: Seq[Prompt], params: SamplingParams) -> None:
        settings = self.settings
        if len(prompts) > settings.max_prompts:
            raise wrong_field(
                f"{len(prompts)} prompts are more than the {settings.max_prompts} of one request: send several "
                "requests",
                "prompt",
            )
        if len(prompts) * params.n > settings.max_texts:
            raise wrong_field(
                f"n={params.n} for {len(prompts)} prompts is more than {settings.max_texts} texts of one request: send "
                "several requests"
            )
        form = params.structured_outputs
        if form is not None and len(str(getattr(form, form.kind)).encode()) > settings.max_schema_bytes:
            raise RequestError(
                f"{form.kind} of structured_outputs is longer than {settings.max_schema_bytes} bytes: "
                "send a smaller one"
            )

    def _end(self) -> None:
        self.num_under_way -= 1
        if not self.num_under_way:
            self._idle.set()


def new_id(prefix: str) -> str:
    """An id that nothing else has."""
    return f"{prefix}{uuid4().hex}"


def _least(*limits: Any) -> Any:
    given = [one for one in limits if one is not None]
    return min(given) if given else None
