"""`outdraft generate`: continue one prompt, and watch where the tokens come from."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outdraft.cli.flags import EngineFlags, FormFlags, SamplingFlags, TextFlags, read_references
from outdraft.cli.options import argument, flag, same
from outdraft.cli.remote.flags import RemoteFlags
from outdraft.options.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.cli.streamed import Tally
    from outdraft.engine.llm import LLM
    from outdraft.options.params import SamplingParams

SUMMARY = "continue a prompt"
EPILOG = """examples:
  outdraft generate "The first thing she saw" --drafter draft_model --color --stats
  outdraft generate --drafter ngram -k 8 --temperature 0.8 --seed 7 < prompt.txt
  outdraft generate "Her name and her age: " --json-schema person.json
  outdraft generate "It was late when" --server http://127.0.0.1:8000 --color --stats"""

_PATH = "/v1/completions"  # of a running server


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A prompt, an engine, a way to sample, and what to show."""

    prompt: str | None = argument(None, "the text to continue; without it, standard input is read")
    engine: EngineFlags = field(metadata={"title": "engine"})
    sampling: SamplingFlags = field(metadata={"title": "sampling"})
    form: FormFlags = field(metadata={"title": "form of the answer"})
    remote: RemoteFlags = field(metadata={"title": "a running server"})
    reference: tuple[str, ...] = same(TextFlags, "reference")
    negative_prompt: str | None = same(TextFlags, "negative_prompt")
    color: bool = flag(False, "colour the text by the source of each token, with a legend")
    stats: bool = flag(False, "show tokens per target pass, acceptance and speed (on stderr)")
    json: bool = flag(False, "machine output: text, ids, sources, finish_reason, variant, lossless, metrics, config")


def run(options: Options) -> int:
    """Stream the text, or print one JSON object."""
    params = options.sampling.params(**options.form.changes())
    prompt = {
        "prompt": read_prompt(options.prompt),
        "references": read_references(options.reference),
        "negative_prompt": options.negative_prompt,
    }
    options.remote.check()
    if options.remote.server is not None:
        return _remotely(options, prompt)
    from outdraft.cli.console import make_console, notes_shown
    from outdraft.cli.streamed import painted, write_stream

    with notes_shown():
        llm = options.engine.load()
    if options.json:
        return _as_json(llm, prompt, params)

    console = make_console()
    codec = llm.tokenizer if options.color else None
    tally = write_stream(console, painted(llm.stream(prompt, params), codec), colour=codec is not None)
    _explain(options, console, tally, None if llm.lossless else llm.config["verifier"]["name"])
    return 0


def _explain(options: Options, console: "Console", tally: "Tally", lossy: str | None) -> None:
    """What is said of the text, on stderr. `lossy`: the rule that did not keep the target's distribution."""
    from outdraft.cli.console import has_style, legend, lossy_note, make_console, say

    errors = make_console(stderr=True)
    if lossy is not None:
        say(errors, lossy_note(lossy), style="bold red")
    if options.color and has_style(console):
        errors.print(legend())
    if options.stats:
        tally.show(errors)


def _remotely(options: Options, prompt: dict[str, Any]) -> int:
    from outdraft.cli.console import make_console, write_json
    from outdraft.cli.remote.answer import answer, is_ours, served_model
    from outdraft.cli.remote.flags import asked
    from outdraft.cli.remote.http import RemoteServer
    from outdraft.cli.streamed import write_stream

    form = {name: value for name, value in options.form.changes().get("structured_outputs", {}).items() if value}
    given = {**asked(options.engine, options.sampling, prompt.pop("references")), **prompt}
    given |= {"structured_outputs": form} if form else {}
    server = RemoteServer(options.remote.server or "", options.remote.api_key)
    model = served_model(server)
    body = {"model": model.get("id"), **{name: value for name, value in given.items() if value is not None}}
    if options.json:
        told = server.ask(_PATH, {**body, "return_token_ids": True} if is_ours(model) else body)
        choice = told["choices"][0]
        write_json(
            {
                "text": choice["text"],
                "token_ids": choice.get("token_ids"),
                "sources": choice.get("token_sources"),
                "finish_reason": choice["finish_reason"],
                "variant": model.get("variant"),
                "lossless": model.get("lossless"),
                "metrics": told.get("metrics"),
                "config": model,  # what the server reports of it
            }
        )
        return 0
    console = make_console()
    pieces = answer(server, _PATH, body, ours=is_ours(model), colour=options.color)
    tally = write_stream(console, pieces, colour=options.color)
    verifier = (model.get("speculative") or {}).get("verifier", "")
    _explain(options, console, tally, None if model.get("lossless", True) else verifier)
    return 0


def read_prompt(given: str | None) -> str:
    """The prompt, from the command line or from standard input. Raises `RequestError` if it is empty."""
    if given is None and sys.stdin.isatty():
        raise RequestError("no prompt: give it as an argument, or through a pipe")
    try:
        prompt = sys.stdin.read() if given is None else given
    except UnicodeDecodeError as error:
        raise RequestError(f"standard input is not UTF-8 text: {error}") from error
    if not prompt.strip():
        raise RequestError("the prompt is empty")
    return prompt.removesuffix("\n") if given is None else prompt


def _as_json(llm: "LLM", prompt: dict[str, Any], params: "SamplingParams") -> int:
    from outdraft.cli.console import write_json

    result = llm.generate(prompt, params)
    write_json(
        {
            "text": result.text,
            "token_ids": list(result.token_ids),
            "sources": [str(source) for source in result.sources],
            "finish_reason": result.finish_reason,
            "variant": result.variant,
            "lossless": result.lossless,
            "metrics": result.metrics,
            "config": llm.config,
        }
    )
    return 0
