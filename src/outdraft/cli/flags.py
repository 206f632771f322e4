"""Flags that several commands share: which engine, how to sample. Names and defaults are those of the Python API."""

import os
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from outdraft.cli.options import default_of, flag
from outdraft.options.errors import ConfigError, RequestError
from outdraft.options.params import SamplingParams

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM

ROLES = ("draft_model", "head", "datastore")  # those of engine/naming/roles.py, which would delay `outdraft --help`


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """Which model, who guesses, which rule judges."""

    model: str = flag(
        "zoo:target",
        "a Hugging Face directory, a hub name (downloaded unless it is in the local cache), a GGUF file, zoo:NAME, "
        "ollama:NAME, lmstudio:PUBLISHER/REPO, or smollm2",
        also=("--model-id",),
    )
    drafter: str | None = flag(
        None,
        "the method that drafts (`outdraft methods`), or none; or a recipe, drafter, rule and policy by a paper's name "
        "(`outdraft methods --kind recipe`; recipe:NAME where a method is called so), or a TOML file of yours; by "
        "default look-ups and what lies beside the model",
        metavar="NAME",
    )
    draft_model: str | None = flag(
        None,
        "a smaller model that drafts; with --drafter, the draft model that it needs",
        metavar="DIR",
        also=("--draft-model-id",),
    )
    head: str | None = flag(
        None,
        "a head that was trained for the model: with --drafter the one that it needs, without it one for the default",
        metavar="DIR",
    )
    datastore: str | None = flag(
        None,
        "a file of `outdraft datastore build`: with --drafter the one that it needs, without it one for the default",
        metavar="FILE",
    )
    drafter_options: Mapping[str, Any] = flag({}, "an option of the drafter; may be repeated; or one JSON object")
    verifier: str | None = flag(None, "the acceptance rule: see `outdraft methods`; auto by default", metavar="NAME")
    verifier_options: Mapping[str, Any] = flag({}, "an option of the verifier")
    policy: str | None = flag(
        None, "decides how many tokens to draft; by default auto, or fixed if -k is given", metavar="NAME"
    )
    policy_options: Mapping[str, Any] = flag({}, "an option of the policy")
    num_speculative_tokens: int | None = flag(
        None, "the most draft tokens for each pass", short="-k", metavar="K", also=("--speculate",)
    )
    speculative_config: Mapping[str, Any] = flag(
        {}, "what drafts and how much as vLLM spells it, in place of the flags above: a JSON object"
    )
    dtype: str = flag("auto", "number format of the weights: auto, float32, bfloat16, float16", metavar="NAME")
    device: str = flag(
        "cpu", "where to compute: cpu, cuda, cuda:1, ..., or auto: CUDA where there is one", metavar="NAME"
    )
    exact: bool | None = flag(
        None, "compute each row independently of its pass: bit-identical text; on by default on a CPU"
    )
    guard: float | None = flag(
        None,
        "with --no-exact: recompute a decision as plain decoding does if a logit difference of at most this decides "
        "it; 0 is off; default: 0.001 in float32, else off",
        metavar="GAP",
    )
    enforce_eager: bool = flag(False, "on a GPU, launch every kernel from Python instead of using CUDA graphs")
    max_model_len: int | None = flag(None, "a shorter context than the model's own")
    max_num_seqs: int = flag(64, "the most requests that are decoded together")
    max_num_batched_tokens: int = flag(512, "the most prompt tokens that one pass reads")
    max_num_waiting: int | None = flag(None, "the most requests that wait; one more is refused")
    model_impl: str = flag(
        "auto",
        "who computes the model's layers: outdraft, transformers (slower, for most other models), or auto",
        metavar="NAME",
    )
    weights_memory: str | None = flag(
        None, "the most memory for the weights, e.g. 512MiB; the rest is read from disk in every pass", metavar="SIZE"
    )
    no_cache: bool = flag(
        False, "pack the weights anew, and keep nothing on disk, nor what was measured (as OUTDRAFT_CACHE=off)"
    )
    kv_cache: str | None = flag(None, "layout of the key/value cache: static, paged", metavar="NAME")
    kv_cache_memory: str | None = flag(
        None, "the most memory for keys and values, e.g. 2GiB; a request that finds no room waits", metavar="SIZE"
    )
    kv_cache_dtype: str = flag(
        "auto",
        "number format of the key/value cache: auto (as computed), int8 (changes the distribution)",
        metavar="NAME",
    )
    enable_prefix_caching: bool | None = flag(
        False, "a prompt takes over what was computed of an earlier text that began alike"
    )

    precision: str = flag(
        "full", "precision of the weights: full, mixed, draft-int4 or elastic (by free memory)", metavar="NAME"
    )
    precision_options: Mapping[str, Any] = flag({}, "an option of elastic precision: min_free or margin")

    def load(self, **more: Any) -> "LLM":
        """The engine, with other words of `LLM` besides. Raises `OutdraftError`s that name what does not fit."""
        from outdraft.engine.llm import LLM

        if self.no_cache:
            os.environ["OUTDRAFT_CACHE"] = "off"
        return LLM(**self.settings(), **more)

    def settings(self) -> dict[str, Any]:
        """What they say to `LLM`."""
        return self._said(one.name for one in fields(self) if one.name != "no_cache")

    def load_plain(self) -> "LLM":
        """The same engine without a drafter."""
        unsaid = {one.name: default_of(one) for one in fields(self) if one.name in SPECULATION}
        return replace(self, **{**unsaid, "drafter": "none"}).load()

    def speculate(self, plain: "LLM", **changes: Any) -> "LLM":
        """What drafts, over the weights of `plain`."""
        return plain.with_speculation(**self._said(SPECULATION) | changes)

    def _said(self, names: Iterable[str]) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in names}
        for word in _PARTS:
            if options := given.pop(f"{word}_options"):
                given[word] = {**options, **({"name": given[word]} if given[word] else {})}
        return {**given, "speculative_config": self.speculative_config or None}  # an empty one says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingFlags(EngineFlags):
    """Of commands that are asked again and again: a conversation is sent with each of its turns."""

    enable_prefix_caching: bool | None = flag(
        None,
        "a prompt takes over what was computed of an earlier text that began alike; by default on where the "
        "native kernels compute, and off with --kv-cache static or --precision elastic",
    )

    def naming(self, place: str | None) -> Self:
        """With the model that was named by position, if one was; raises `ConfigError` if a flag names one too."""
        if place is None:
            return self
        if self.model != type(self)().model:
            raise ConfigError(
                f"{place!r} and --model {self.model} both name the model: give one; a flag that may be repeated stands "
                "before each of its values"
            )
        return replace(self, model=place)


_PARTS = ("drafter", "verifier", "policy")
SPECULATION = (*ROLES, *_PARTS, *(f"{part}_options" for part in _PARTS), "num_speculative_tokens", "speculative_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFlags:
    """Texts beside the prompt."""

    reference: tuple[str, ...] = flag(
        (), "a text file that the answer may copy from, for drafters that look up; may be repeated", metavar="FILE"
    )
    negative_prompt: str | None = flag(
        None, "with --guidance-scale, the text to keep away from; default: the prompt's last token", metavar="TEXT"
    )


def read_references(paths: Seq[str]) -> list[str]:
    """The texts of `--reference` files. Raises `RequestError` naming one that cannot be read."""
    return [text for path in paths if (text := read_file("reference", path)) is not None]


def read_file(what: str, path: str | None) -> str | None:
    """The text of a file that a flag names; None where it names none. Raises `RequestError` if it cannot be read."""
    from outdraft.options.paths import user_path

    if path is None:
        return None
    try:
        return user_path(path, error=RequestError).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{what} {path} cannot be read: {error}; give a text file in UTF-8") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceFlags:
    """How to choose the next token."""

    min_tokens: int = flag(0, "the fewest tokens of an answer")
    temperature: float = flag(0.0, "0 is greedy")
    top_k: int = flag(0, "only the K most probable tokens; 0 is off")
    top_p: float = flag(1.0, "only the most probable tokens that make up P; 1 is off")
    min_p: float = flag(0.0, "only tokens at least P times as probable as the best; 0 is off")
    typical_p: float = flag(1.0, "after the others, only the most typical tokens that make up P; 1 is off")
    stop: tuple[str, ...] = flag((), "end before this text; may be repeated")
    stop_token_ids: tuple[int, ...] = flag((), "end after this token id; may be repeated")
    ignore_eos: bool = flag(False, "continue after an end-of-text token")
    logit_bias: Mapping[str, Any] = flag({}, "ID=BIAS added to a token's logit; may be repeated")
    banned_token_ids: tuple[int, ...] = flag((), "never write this token id; may be repeated")
    bad_words: tuple[str, ...] = flag((), "never write this word; may be repeated")
    allowed_token_ids: tuple[int, ...] | None = flag(None, "write only this token id; may be repeated")
    forced_prefix: str = flag("", "begin the answer with this text")
    repetition_penalty: float = flag(1.0, "above 1 discourages tokens of prompt and output")
    presence_penalty: float = flag(0.0, "discourages tokens of the output")
    frequency_penalty: float = flag(0.0, "discourages tokens of the output, times how often they occur")
    guidance_scale: float = flag(
        1.0, "classifier-free guidance: above 1 keeps closer to the prompt, for twice the computing; 1 is off"
    )

    def params(self, **changes: Any) -> SamplingParams:
        """As the engine takes them. Raises `RequestError` naming what is out of range."""
        given = {one.name: getattr(self, one.name) for one in fields(self)} | changes
        try:
            given["logit_bias"] = {int(token): float(bias) for token, bias in given["logit_bias"].items()}
        except (TypeError, ValueError) as error:
            raise RequestError(f"logit_bias={dict(self.logit_bias)!r}: write TOKEN_ID=NUMBER") from error
        return SamplingParams(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags(ChoiceFlags):
    """The same, and of which text."""

    max_tokens: int = flag(128, "the most tokens of an answer")
    seed: int | None = flag(None, "the same seed gives the same text, with any drafter or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormFlags:
    """The form that the answer is to have: one of these, or none."""

    json_schema: str | None = flag(None, "JSON of the schema in this file", metavar="FILE")
    regex: str | None = flag(None, "text that matches this pattern", metavar="PATTERN")
    grammar: str | None = flag(None, "text of the grammar in this file: Lark's notation, or GBNF", metavar="FILE")
    choice: tuple[str, ...] = flag((), "one of these texts; may be repeated")

    def changes(self) -> dict[str, Any]:
        """What it adds to the sampling settings. Raises `RequestError` for two forms, or a file that is not there."""
        form = {
            "json": read_file("json schema", self.json_schema),
            "regex": self.regex,
            "grammar": read_file("grammar", self.grammar),
            "choice": self.choice or None,
        }
        return {"structured_outputs": form} if any(one is not None for one in form.values()) else {}
