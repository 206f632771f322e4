"""The front door: a model, a drafter and a rule behind `generate`, `stream` and their async twins.

Any number of callers may wait at once, from threads or from asyncio: whoever holds the lock steps the engine for all,
and the events of every request go to that request's own writer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Never, overload

import torch

from outdraft.cache.config import CacheConfig
from outdraft.codecs.text import TextCodec
from outdraft.core.drafter import forget
from outdraft.core.errors import OutdraftError, RequestError
from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.engine.assemble import engine_over, make_engine
from outdraft.engine.build import load_codec
from outdraft.engine.elastic import ElasticEngine
from outdraft.engine.loop import Engine
from outdraft.engine.memory import read_bytes
from outdraft.engine.precision import FULL, MIXED
from outdraft.engine.spelling import WORDS, Words, refuse_unknown
from outdraft.engine.variant import Setup, build_variant, network_of
from outdraft.engine.writer import Chunk, Result, Writer
from outdraft.kernels.threads import torch_threads
from outdraft.models.network import Network
from outdraft.weights.hub import resolve

Prompt = str | Mapping[str, Any]
PROMPT_KEYS = ("prompt", "prompt_token_ids", "references")


class LLM:
    """A language model that decodes speculatively.

    Args:
        model: a Hugging Face directory, a GGUF file, a hub name, or "zoo:target".
        drafter: who guesses (`outdraft methods` lists them); nobody by default. `drafter_options` are its own.
        verifier: which rule judges. "auto", the default: the target's own keyed draw where a request names a seed (the
            text is then the same with any drafter, and with none), else the rule that accepts most for the guess.
        policy, num_speculative_tokens: how much to guess (docs/policies.md). Default: "auto", by measured cost and
            acceptance; with a num_speculative_tokens and no policy "fixed", so many in every round. With another policy
            num_speculative_tokens is the deepest guess.
        recipe: all of these by a paper's name, or a TOML file of yours; excludes `drafter`, whatever else is given
            beside it overrides the recipe's.
        speculative_config: the same in vLLM's words; excludes `drafter`.
        draft_model: a draft model's directory; short for drafter="draft_model" with that model.
        speculative_model: the same in vLLM's older words; "[ngram]" names a drafter.
        exact: rows are computed so that a token's logits do not depend on the pass it was scored in. Greedy and seeded
            text is then bit-identical with speculation on or off. Default: on a CPU, where it is tested; off elsewhere.
        guard: where rows are not exact, a decision that a change of so much in the difference of two logits could turn
            is made again as plain decoding makes it (docs/exactness.md); 0 is off. Default: 0.001 in float32, else off.
        enforce_eager: on a GPU, launch every kernel from Python instead of recording passes as CUDA graphs.
        max_model_len: a shorter context than the model's own.
        kv_cache: where keys and values lie. "static": a block for each sequence; "paged": one pool of pages for all.
        kv_cache_dtype: "auto", the model's own; "int8": bytes with one scale a row, which is another law than the
            model's own: `config["variant"]` says so.
        precision: of the weights. "full": as they are stored. "draft-int4": the draft model on 4 bits, the same text.
            "mixed": the target's middle layers on 4 bits, another law. "elastic": the first of these that leaves memory
            free, chosen when a request is admitted and never changed within it. Results name their `variant`.
        weights_memory: at most so much memory for the target's weights ("512MiB", or bytes); layers that do not fit are
            read from disk in every pass, the text is the same (docs/streaming.md). None: all weights are held.
        precision_options: of "elastic": `min_free` and `margin`, shares of all memory.

    Raises:
        ModelLoadError, ConfigError, CapabilityError: before any token is written.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        drafter: str | None = None,
        drafter_options: Mapping[str, Any] | None = None,
        verifier: str | None = None,
        verifier_options: Mapping[str, Any] | None = None,
        policy: str | None = None,
        policy_options: Mapping[str, Any] | None = None,
        num_speculative_tokens: int | None = None,
        recipe: str | Path | None = None,
        speculative_config: Mapping[str, Any] | None = None,
        draft_model: str | Path | None = None,
        speculative_model: str | Path | None = None,
        dtype: str = "auto",
        device: str = "cpu",
        exact: bool | None = None,
        guard: float | None = None,
        enforce_eager: bool = False,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        weights_memory: int | str | None = None,
        kv_cache: str = "static",
        kv_cache_dtype: str = "auto",
        precision: str = FULL,
        precision_options: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, LLM.__init__)
        cache = CacheConfig(layout=kv_cache, dtype=kv_cache_dtype)
        speculation = Words(
            drafter=drafter, drafter_options=drafter_options, verifier=verifier, verifier_options=verifier_options,
            policy=policy, policy_options=policy_options, num_speculative_tokens=num_speculative_tokens, recipe=recipe,
            speculative_config=speculative_config, draft_model=draft_model, speculative_model=speculative_model,
        ).read()  # fmt: skip
        directory = resolve(str(model))
        self.codec: TextCodec | None = load_codec(directory)
        self._max_num_seqs = max_num_seqs
        self._setup = Setup(
            directory=directory,
            codec=self.codec,
            dtype=dtype,
            device=device,
            exact=device == "cpu" if exact is None else exact,
            guard=guard,
            enforce_eager=enforce_eager,
            max_len=max_model_len,
            weights_memory=read_bytes(weights_memory),
            cache=cache,
            speculation=speculation,
        )
        self._run(*make_engine(self._setup, precision, precision_options, **self._settings()))

    def _settings(self) -> dict[str, Any]:
        """What an engine is told besides its parts."""
        stops = frozenset(self.codec.eos_token_ids) if self.codec else frozenset[int]()
        return {"stops": stops, "max_num_seqs": self._max_num_seqs}

    def _run(self, engine: Engine, config: dict[str, Any]) -> None:
        self.engine = engine
        self._config = config
        self._is_native = self._decoder.kernels != "pytorch"
        self._lock = Lock()
        self._writers: dict[int, Writer] = {}

    @property
    def config(self) -> dict[str, Any]:
        """What runs, as plain data; with elastic precision, what runs now."""
        if not isinstance(self.engine, ElasticEngine):
            return self._config
        precision = {**self._config["precision"], "level": self.engine.ladder.level}
        return {**self.engine.config, "precision": precision}

    @property
    def lossless(self) -> bool:
        """Whether what it writes has the target's law; a lossy verifier says no."""
        return self.engine.parts.verifier.lossless

    @property
    def _decoder(self) -> Network:
        return network_of(self.engine.parts)

    def with_drafter(
        self,
        drafter: str,
        options: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> "LLM":
        """Another engine over the same loaded weights, which it keeps: with elastic precision, those of this moment.

        `others`: verifier, verifier_options, policy, policy_options, num_speculative_tokens, as for `LLM`.
        """
        return self.with_speculation(drafter=drafter, drafter_options=options, **others)

    def with_recipe(self, recipe: str | Path, **others: Any) -> "LLM":
        """Likewise with a recipe. `others` override it: drafter_options, verifier, policy, their options, ..."""
        return self.with_speculation(recipe=recipe, **others)

    def with_speculation(self, **words: Any) -> "LLM":
        """Likewise, in any words by which `LLM` is told what drafts: speculative_config, draft_model, recipe, ..."""
        refuse_unknown({word: words[word] for word in words.keys() - WORDS}, LLM.__init__)
        other = object.__new__(LLM)
        other.codec, other._max_num_seqs = self.codec, self._max_num_seqs
        other._setup = replace(self._setup, speculation=Words(**words).read())
        precision = self.config["precision"]
        is_mixed = precision.get("level", precision["name"]) == MIXED
        variant = build_variant(other._setup, self._decoder)
        other._run(*engine_over(variant, MIXED if is_mixed else FULL, **other._settings()))
        return other

    @overload
    def generate(self, prompts: Prompt, params: SamplingParams | None = None, **per_request: Any) -> Result: ...
    @overload
    def generate(
        self, prompts: Seq[Prompt], params: SamplingParams | Seq[SamplingParams] | None = None, **per_request: Any
    ) -> list[Result]: ...
    def generate(self, prompts: Any, params: Any = None, **per_request: Any) -> Any:
        """Complete one prompt, or several as one ragged batch; results in the order given.

        A prompt is a string, {"prompt": str} or {"prompt_token_ids": [...]}, the latter two with "references": [...] if
        wanted: texts (or lists of token ids) that this answer may copy from, for drafters that look up; `references=`
        is for all prompts of the call. `num_speculative_tokens=` overrides the policy for this call; 0 turns
        speculation off.
        """
        alone = isinstance(prompts, str | Mapping)
        writers = self._submit([prompts] if alone else prompts, params, per_request)
        try:
            while not all(writer.finished for writer in writers):
                self._advance(lambda: all(writer.finished for writer in writers))
        finally:
            self._withdraw(writers)
        results = [writer.result() for writer in writers]
        return results[0] if alone else results

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **per_request: Any) -> Iterator[Chunk]:
        """Complete one prompt piece by piece. Leaving the loop cancels the request."""
        writers = self._submit([prompt], params, per_request)
        try:
            while not writers[0].finished or writers[0].chunks:
                if not writers[0].chunks:
                    self._advance(lambda: bool(writers[0].chunks))
                while writers[0].chunks:
                    yield writers[0].chunks.popleft()
        finally:
            self._withdraw(writers)

    async def agenerate(self, prompt: Prompt, params: SamplingParams | None = None, **per_request: Any) -> Result:
        """`generate` for one prompt; concurrent calls share the batch."""
        writers = await asyncio.to_thread(self._submit, [prompt], params, per_request)
        try:
            while not writers[0].finished:
                await asyncio.to_thread(self._advance, lambda: writers[0].finished)
        finally:
            await asyncio.to_thread(self._withdraw, writers)
        return writers[0].result()

    async def astream(
        self, prompt: Prompt, params: SamplingParams | None = None, **per_request: Any
    ) -> AsyncIterator[Chunk]:
        """`stream`; concurrent calls share the batch."""
        writers = await asyncio.to_thread(self._submit, [prompt], params, per_request)
        try:
            while not writers[0].finished or writers[0].chunks:
                if not writers[0].chunks:
                    await asyncio.to_thread(self._advance, lambda: bool(writers[0].chunks))
                while writers[0].chunks:
                    yield writers[0].chunks.popleft()
        finally:
            await asyncio.to_thread(self._withdraw, writers)

    def forget(self) -> None:
        """Have the drafter drop what it learned from requests that are over: a repeated prompt begins as a new one."""
        with self._lock:
            forget(self.engine.parts.drafter)

    def _submit(self, prompts: Seq[Prompt], params: Any, per_request: Mapping[str, Any]) -> list[Writer]:
        """Check every request, then queue them all; nothing is queued if one is bad."""
        settings = list(params) if isinstance(params, list | tuple) else [params or SamplingParams()] * len(prompts)
        if len(settings) != len(prompts):
            raise RequestError(
                f"{len(prompts)} prompts but {len(settings)} sampling settings: give one, or one for each"
            )
        for_all = tuple(per_request.get("references", ()))
        requests = [
            Request(
                prompt_token_ids=self.encode(prompt),
                params=setting,
                **{**per_request, "references": self._references(prompt, for_all)},
            )
            for prompt, setting in zip(prompts, settings, strict=True)
        ]
        writers: list[Writer] = []
        with self._lock:
            try:
                for request in requests:
                    writer = Writer(request, self.codec, lossless=self.lossless)
                    writer.seq = self.engine.add(request, writer.find_stop)
                    self._writers[writer.seq.id] = writer
                    writers.append(writer)
            except OutdraftError:
                for writer in writers:
                    self._drop(writer)
                raise
        return writers

    def _references(self, prompt: Prompt, for_all: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
        """The prompt's own texts to copy from, then everybody's, as ids."""
        own = prompt.get("references", ()) if isinstance(prompt, Mapping) else ()
        if isinstance(own, str):
            raise RequestError("'references' is a list of texts: write [...] around a single one")
        texts = [text if isinstance(text, str) else {"prompt_token_ids": text} for text in (*own, *for_all)]
        return tuple(self.encode(text) for text in texts)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids of a prompt in any of its forms. Raises `RequestError` if it is none."""
        if isinstance(prompt, Mapping):
            if len(set(prompt) & {"prompt", "prompt_token_ids"}) != 1 or set(prompt) - set(PROMPT_KEYS):
                raise RequestError(
                    "a prompt mapping has one of the keys 'prompt' and 'prompt_token_ids', and 'references' if wanted; "
                    f"got {sorted(prompt)}"
                )
            if "prompt_token_ids" in prompt:
                return tuple(int(i) for i in prompt["prompt_token_ids"])
            prompt = prompt["prompt"]
        if not isinstance(prompt, str):
            raise RequestError(f"a prompt is a string or a mapping, not {type(prompt).__name__}")
        if self.codec is None:
            raise RequestError(
                f"{self._setup.directory.name} has no tokenizer.json: put the model's own beside it, or give "
                "{'prompt_token_ids': [...]}"
            )
        return tuple(self.codec.encode(prompt))

    def _advance(self, served: Callable[[], bool]) -> None:
        """One step for everybody, unless somebody else's step has `served` the caller while it waited."""
        with self._lock, torch_threads(1 if self._is_native else torch.get_num_threads()):
            if served():
                return
            for event in self.engine.step():
                self._writers[event.seq_id].push(event)

    def _withdraw(self, writers: Seq[Writer]) -> None:
        with self._lock:
            for writer in writers:
                self._drop(writer)

    def _drop(self, writer: Writer) -> None:
        self.engine.cancel(writer.seq)
        self._writers.pop(writer.seq.id, None)
