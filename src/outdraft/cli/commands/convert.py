"""`outdraft convert`: convert a draft to another project's file layout, or from it."""

from dataclasses import asdict, dataclass

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

SUMMARY = "convert a draft to another project's file layout, or from it"
EPILOG = """The source is a directory, or a hub name, of any layout that outdraft reads (docs/convert.md lists them).
--to names a layout or a server. Drafting needs no conversion: a drafter reads every layout of its kind. Examples:
  outdraft convert DIR --target MODEL --to medusa --out DIR2
  outdraft convert DIR --target MODEL --to vllm --out DIR2
  outdraft convert DIR --target MODEL --to outdraft --out DIR2"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to write again, for whom, and where to."""

    source: str | None = argument(None, "a draft: a directory, or a hub name")
    target: str | None = flag(None, "the model that it drafts for: a directory, or zoo:NAME")
    to: str | None = flag(None, "a layout or a server: outdraft, medusa, speculators, vllm, ...", metavar="NAME")
    out: str | None = flag(None, "the new directory; must not exist yet", metavar="DIR")
    json: bool = flag(False, "machine output: kind, read_as, written_as, lines, taps, checks")


def run(options: Options) -> int:
    """Convert, and say who serves it how."""
    from outdraft.cli.console import make_console, say, taps_line, write_json
    from outdraft.training.convert import convert

    missing = [name for name in ("source", "target", "to", "out") if getattr(options, name) is None]
    if missing or options.source is None or options.target is None or options.to is None or options.out is None:
        raise ConfigError(
            f"convert needs {', '.join(missing)}: outdraft convert DIR --target MODEL --to NAME --out DIR"
        )
    found = convert(options.source, options.to, options.target, user_path(options.out))
    if options.json:
        write_json(asdict(found))
        return 0
    console = make_console()
    say(console, f"{options.out}: {found.kind}, read as {found.read_as}, written as {found.written_as}")
    for line in (*([taps_line(found.taps)] if found.taps else []), *found.lines.values(), found.checks):
        say(console, line)
    return 0
