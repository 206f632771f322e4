"""The public interface: a model, a drafter and a rule behind `generate`; `stream` and asyncio are in `streaming.py`.

What a prompt may be is in `engine/callers/prompts.py`, how several callers share the engine in `thread.py` beside it.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, Never, overload

from outdraft.cache.config import CacheConfig
from outdraft.codecs.codec import Codec
from outdraft.codecs.grammar.compile import Grammars
from outdraft.codecs.text import TextCodec
from outdraft.core.logprobs import LogprobsMode
from outdraft.engine.adapting.asked import adapt_options, begin_adapting
from outdraft.engine.assembly.assemble import Assembled, make_engine
from outdraft.engine.assembly.precision import ELASTIC, FULL
from outdraft.engine.assembly.setup import Setup
from outdraft.engine.callers.progress import counted
from outdraft.engine.callers.prompts import Prompt, PromptReader, each, gathered, one_of
from outdraft.engine.callers.result import Result
from outdraft.engine.callers.streaming import Streaming
from outdraft.engine.callers.thread import EngineThread
from outdraft.engine.naming.roles import read_companions
from outdraft.engine.naming.words import read_words
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.engine.siblings import Siblings
from outdraft.models.files.load_codec import load_codec, require_rows
from outdraft.models.networks.device import choose_device
from outdraft.options.checked import check_arguments
from outdraft.options.params import SamplingParams
from outdraft.options.sizes import read_bytes
from outdraft.weights.hub import resolve


class LLM(Streaming, Siblings):
    """A language model that decodes speculatively.

    In a `with` block its thread ends with the block. Arguments of other engines: docs/coming_from.md.

    Args:
        model: a Hugging Face directory, a GGUF file, a hub name, "zoo:target", "smollm2", "ollama:llama3.2:1b", or
            "lmstudio:PUBLISHER/REPO".
        drafter: the method that drafts, by its name, or with options as {"name": "ngram", "max_ngram": 4}; or a recipe
            (docs/recipes.md): a published combination of drafter, rule and policy, by its name or as a TOML file of
            yours; other arguments override its settings, and "recipe:NAME" is one that is called as a drafter is.
            "none" is plain decoding. The default is look-ups, with the draft model or head that is given or found
            beside the model, on native kernels, CUDA, or behind the guard; elsewhere "none".
        verifier: the acceptance rule, by its name, or with options as the drafter. "auto", the default, takes the
            target's own keyed draw for a request with a seed (the text is then the same with any drafter, and with
            none), else the rule that accepts most for the guess.
        policy: what decides how much to guess (docs/policies.md), likewise. "auto", the default, decides by measured
            cost and acceptance; if only num_speculative_tokens is given, the policy is "fixed".
        num_speculative_tokens: draft tokens of every round; with a policy, the most that it may ask for.
        speculative_config: what drafts as a dictionary with vLLM's keys; cannot be given with `drafter`.
        draft_model: the directory of a draft model that the drafter or recipe needs; without one it drafts alone.
        head, datastore: a trained head, and a datastore, for a drafter or recipe that needs one, or for the default
            drafter (docs/recipes.md).
        codec: what its ids stand for, in place of its tokenizer: a `Codec` of pixels, of sound (docs/add_a_model.md).
        revision: branch, tag or commit of a model that is named as on the hub.
        dtype: number format of the weights: "auto" (as stored), "float32", "bfloat16", "float16" (or "half").
        device: where to compute: "cpu", "cuda", "cuda:1", ...; "auto" is CUDA where there is one, and else the CPU.
        exact: compute rows so that a token's logits do not depend on the pass it was scored in. Greedy and seeded text
            is then bit-identical with speculation on or off. Default: on a CPU, where it is tested; off elsewhere.
        guard: where rows are not exact, a decision is made again as plain decoding makes it if a change of this size in
            the difference of two logits could alter it (docs/exactness.md); 0 is off. Default: 0.001 in float32, else
            off.
        enforce_eager: on a GPU, launch every kernel from Python instead of recording passes as CUDA graphs.
        max_model_len, max_num_seqs: a shorter context than the model's own; the most requests of a batch.
        model_impl: which library computes the target's layers: "outdraft"; "transformers" (slower, for most other
            models); "auto" is outdraft where it knows the architecture (docs/models.md).
        weights_memory: the most memory for the target's weights ("512MiB", or bytes); what does not fit is read from
            disk in every pass (docs/streaming.md). None: all weights stay in memory.
        max_num_batched_tokens, max_num_waiting: the most prompt tokens of a pass; the most requests that wait.
        kv_cache: "static", a block for each sequence; "paged", one pool for all, with prefix caching or a limit.
        kv_cache_memory: a hard limit for the keys and values of target and drafters together ("2GiB", or bytes): a
            request that finds no room waits (docs/scheduling.md).
        kv_cache_dtype: "auto", the model's own number format; "int8" changes the distribution, and `config["variant"]`
            names it.
        enable_prefix_caching: a prompt takes over what was read of an earlier text that began alike (docs/cache.md).
            None: on the native kernels, but not with kv_cache="static" or elastic precision, which watches memory.
        logprobs_mode: what `.logprob` of a record shows: "raw_logprobs", "processed_logits", ... (docs/quickstart.md)
        precision: precision of the weights. "full": as they are stored. "draft-int4": the draft model on 4 bits, the
            same text. "mixed": the target's middle layers on 4 bits, another distribution. "elastic": the first of
            these that leaves memory free when a request is admitted. Results name their `variant`
            (docs/quantization.md).
        precision_options: options of "elastic": `min_free` and `margin`.
        adapt: True, or `AdaptOptions` as {"room": DIR}: its draft learns from what is served (docs/adaptation.md).

    Raises:
        ModelLoadError, ConfigError, CapabilityError: before any token is written.
    """

    adapting: Any = None  # an `Adapting`, where its draft learns

    @check_arguments
    def __init__(
        self,
        model: str | Path,
        *,
        drafter: str | Path | Mapping[str, Any] | None = None,
        verifier: str | Mapping[str, Any] | None = None,
        policy: str | Mapping[str, Any] | None = None,
        num_speculative_tokens: int | None = None,
        speculative_config: Mapping[str, Any] | None = None,
        draft_model: str | Path | None = None,
        head: str | Path | None = None,
        datastore: str | Path | None = None,
        codec: Codec[Any] | None = None,
        revision: str | None = None,
        dtype: str = "auto",
        device: str = "cpu",
        exact: bool | None = None,
        guard: float | None = None,
        enforce_eager: bool = False,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        max_num_waiting: int | None = None,
        model_impl: str = "auto",
        weights_memory: int | str | None = None,
        kv_cache: str | None = None,
        kv_cache_memory: int | str | None = None,
        kv_cache_dtype: str = "auto",
        enable_prefix_caching: bool | None = False,
        logprobs_mode: LogprobsMode = "raw_logprobs",
        precision: str = FULL,
        precision_options: Mapping[str, Any] | None = None,
        adapt: bool | Mapping[str, Any] = False,
        **unknown: Never,
    ) -> None:
        place = choose_device(device)
        keeps = bool(enable_prefix_caching) if precision == ELASTIC else enable_prefix_caching
        cache = CacheConfig.asked(kv_cache, kv_cache_dtype, prefixes=keeps, memory=kv_cache_memory)
        scheduling = SchedulerSettings(
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, max_num_waiting=max_num_waiting
        )
        combination = read_words(
            unknown,
            LLM.__init__,
            lambda: read_companions(resolve(str(model), revision=revision)),
            drafter=drafter,
            verifier=verifier,
            policy=policy,
            num_speculative_tokens=num_speculative_tokens,
            speculative_config=speculative_config,
            draft_model=draft_model,
            head=head,
            datastore=datastore,
        )
        directory = resolve(str(model), revision=revision)
        setup = Setup(
            directory=directory,
            codec=load_codec(directory) if codec is None else codec,
            dtype=dtype,
            device=place,
            exact=place.type == "cpu" if exact is None else exact,
            guard=guard,
            enforce_eager=enforce_eager,
            max_len=max_model_len,
            scheduling=scheduling,
            precision=precision,
            precision_options=precision_options or {},
            weights_memory=None if weights_memory is None else read_bytes(weights_memory),
            model_impl=model_impl,
            logprobs_mode=logprobs_mode,
            cache=cache,
            renews=adapt is not False,
            combination=combination,
        )
        learning = None if adapt is False else adapt_options(adapt, precision)
        self._run(setup, make_engine(setup, setup.open_model()))
        if learning is not None:
            self.adapting = begin_adapting(self._thread, setup.directory, learning)

    def close(self) -> None:
        """End its threads: requests under way end with an error, later ones are refused. Engines beside it go on."""
        try:
            if self.adapting is not None:
                self.adapting.close()
        finally:
            super().close()

    def _run(self, setup: Setup, made: Assembled) -> None:
        size = made.engine.composition.terms.vocab_size
        self.codec = codec = setup.codec
        if codec is not None:  # beside a GGUF file it may be another model's
            require_rows(codec, size, setup.directory)
        self.engine = made.engine
        self._setup = setup
        self._config = made.config
        ends, parts = made.engine.eos_token_ids, setup.prompt_parts
        grammars = Grammars(codec, vocab_size=size, ends=ends) if isinstance(codec, TextCodec) else None
        self._prompts = PromptReader(
            name=setup.directory.name, codec=codec, grammars=grammars, logprobs_mode=setup.logprobs_mode, parts=parts
        )
        self._thread = EngineThread(made.engine, codec, native=made.native)

    @overload
    def generate(self, prompts: Prompt, params: SamplingParams | None = None, **others: Any) -> Result: ...
    @overload
    def generate(
        self, prompts: Seq[Prompt], params: SamplingParams | Seq[SamplingParams] | None = None, **others: Any
    ) -> list[Result]: ...
    def generate(
        self, prompts: Any, params: Any = None, *, sampling_params: Any = None, use_tqdm: Any = None, **per_request: Any
    ) -> Any:
        """Complete one prompt, or several as one ragged batch; results in the order given.

        A prompt is a string, {"prompt": str} or {"prompt_token_ids": [...]}, the latter two with "references": [...] if
        wanted: texts (or lists of token ids) that this answer may copy from, for drafters that look up; `references=`
        is for all prompts of the call. `num_speculative_tokens=` overrides the policy for this call; 0: no speculation.
        `speculative=False`: plain decoding; or {"method": one of the drafters held, "num_speculative_tokens": ...,
        "verifier": a lossless rule, "policy": "fixed" or the engine's own} for these prompts (docs/policies.md).
        `negative_prompt=` (text or ids), also as a key of a prompt's mapping: what guidance leads away from, with
        `SamplingParams(guidance_scale=1.5)`; without one it is the prompt's last token alone.
        `cache_salt=`: what these requests leave for later ones, and find, is for this salt alone. `priority=`: the
        lower joins first. `timeout=`: seconds from this call on; then the text ends (finish_reason="timeout").
        `logprobs_mode=` overrides the engine's. `constraint=`: makes what says, for one text, which tokens may follow
        (`outdraft.core.constraint`). `sampling_params` is `params`. `use_tqdm`: a progress bar; None: at a terminal.

        A request that fails costs no other: in a list its result has finish_reason="error" and the `error`, and what it
        had written. A single prompt's error is raised.
        """
        asked_at, alone = self.engine.clock(), isinstance(prompts, str | Mapping)
        listed = [prompts] if alone else list(each(prompts))
        settings = params if sampling_params is None else one_of(params, sampling_params)
        asked = self._prompts.requests(listed, settings, per_request)
        singles = [single for request in asked for single in request.singles()]
        calls = self._thread.submit(singles, asked_at=asked_at)
        try:
            for call in calls if alone and not use_tqdm else counted(calls, len(calls), wanted=use_tqdm):
                while not call.finished:
                    call.wait()
        finally:
            for call in calls:
                call.leave()
        for call in calls if alone else ():
            call.raise_error()
        results = gathered(asked, [call.writer.result() for call in calls], listed)
        return results[0] if alone else results
