"""`outdraft datastore`: make the file that retrieval looks things up in, and say what is in one."""

import resource
import sys
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.command import action
from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.drafters.shared.look_up.datastore.file import Header

SUMMARY = "build or describe a datastore: a file of texts for drafters that look up"
EPILOG = """A text file is one document; a .jsonl file has one a line, as "text" or as "token_ids". Both may be
packed (.gz). Examples:
  outdraft datastore build FILE --model zoo:target --data CORPUS
  outdraft datastore build FILE --model MODEL --text notes.txt --from-outputs answers.jsonl
  outdraft datastore info FILE"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Which texts go into which file."""

    file: str | None = argument(None, "the datastore to write")
    model: str | None = flag(None, "whose tokenizer reads the texts: a directory, a GGUF file, or zoo:NAME")
    text: tuple[str, ...] = flag((), "a text or .jsonl file; may be repeated", metavar="FILE")
    data: tuple[str, ...] = flag((), "a directory, with all texts below it; may be repeated", metavar="DIR")
    from_outputs: tuple[str, ...] = flag(
        (), "a .jsonl file of the target's own answers, as text or as token_ids; may be repeated", metavar="FILE"
    )
    json: bool = flag(False, "machine output: header, seconds, memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoOptions:
    """The datastore to look at, and how it is shown."""

    file: str | None = argument(None, "the datastore")
    json: bool = flag(False, "machine output: the header")


def _path(file: str | None, what: str) -> Path:
    if file is None:
        raise ConfigError(f"it needs a file: outdraft datastore {what} FILE")
    return Path(file)


def build(options: BuildOptions) -> int:
    """Read the texts and write the file."""
    path = _path(options.file, "build")
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.drafters.shared.look_up.datastore.build import build_datastore
    from outdraft.drafters.shared.look_up.datastore.documents import find_files, read_documents
    from outdraft.models.files.load_codec import load_codec
    from outdraft.weights.hub import resolve

    if options.model is None:
        raise ConfigError("it needs --model: the ids of a datastore are those of one model's tokenizer")
    files = find_files([*options.text, *options.data, *options.from_outputs])
    if not files:
        raise ConfigError("it needs texts: name them with --text FILE, --data DIR or --from-outputs FILE")
    source = resolve(options.model)
    codec = load_codec(source)
    if codec is None:
        raise ConfigError(f"{source.name} has no tokenizer.json to read the texts with: put the model's beside it")
    skipped: list[str] = []
    documents = (document for file in files for document in read_documents(file, skipped.append))
    with make_console(stderr=True).status("reading") as status:
        built = build_datastore(
            path, documents, codec, lambda what, share: status.update(what if isnan(share) else f"{what} {share:.0%}")
        )
    for line in skipped:
        sys.stderr.write(f"left out: {line}\n")
    told = {
        **_describe(built.header),
        "files": len(files),
        "skipped": skipped,
        "encode_seconds": built.encode_seconds,
        "sort_seconds": built.sort_seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # the mapped file included
    }
    if options.json:
        write_json(told)
        return 0
    console = make_console()
    say(console, f"{path}  {_words(built.header)}")
    say(
        console,
        f"{built.encode_seconds:.1f} s to read and encode {len(files)} files, {built.sort_seconds:.1f} s to sort; "
        f"at most {told['peak_rss_bytes'] / 1e6:,.0f} MB of memory, the mapped file included",
    )
    return 0


def info(options: InfoOptions) -> int:
    """Show what the header says."""
    path = _path(options.file, "info")
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.drafters.shared.look_up.datastore.file import open_datastore

    header = open_datastore(path).header
    if options.json:
        write_json(_describe(header))
    else:
        say(make_console(), f"{path}  {_words(header)}")
    return 0


def _describe(header: "Header") -> dict[str, Any]:
    names = ("num_tokens", "num_documents", "vocab_size", "fingerprint", "num_bytes")
    return {name: getattr(header, name) for name in names}


def _words(header: "Header") -> str:
    tokenizer = header.fingerprint[:12] or "not named"
    return (
        f"{header.num_tokens:,} tokens in {header.num_documents:,} documents, {header.num_bytes / 1e6:,.1f} MB; "
        f"vocabulary of {header.vocab_size:,}, tokenizer {tokenizer}"
    )


ACTIONS = (
    action(build, BuildOptions, "write a datastore of texts"),
    action(info, InfoOptions, "say what is in a datastore"),
)
