"""`outdraft list`: the models that need no download: of the hub's cache, of our own, and of packages."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import flag
from outdraft.options.errors import ConfigError

if TYPE_CHECKING:
    from outdraft.weights.kept import Kept

SUMMARY = "list the models that are on this machine, with what drafts for each"
EPILOG = """Models of Ollama and LM Studio are in `outdraft info`. Examples:
  outdraft list
  outdraft list --json"""
_COLUMNS = ("name", "size", "where", "drafts beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to show them."""

    json: bool = flag(False, "machine output: name, bytes, revision, refs, place, path, drafts of each")


def run(options: Options) -> int:
    """Look, and print a line for each."""
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.options.sizes import size_text
    from outdraft.weights.kept import PART, list_kept

    kept = list_kept()
    if options.json:
        write_json([_as_data(one) for one in kept])
        return 0
    console = make_console()
    rows = [_COLUMNS] if kept else []
    for one in kept:
        drafts = "outdraft pull goes on" if one.place == PART else ", ".join(kind for kind, _ in _drafts(one)) or "none"
        rows.append((one.name, size_text(one.num_bytes), one.place, drafts))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        say(console, line)
    if not kept:
        say(console, "no model is here but those of the zoo: outdraft pull NAME downloads one")
    return 0


def _as_data(one: "Kept") -> dict[str, Any]:
    told = asdict(one)
    drafts = [f"{kind}: {place}" if place else kind for kind, place in _drafts(one)]
    return {**told, "bytes": told.pop("num_bytes"), "path": str(one.path), "drafts": drafts}


def _drafts(one: "Kept") -> list[tuple[str, str]]:
    """What fills a role beside this model, as `LLM` finds it, and where it is: ("head (eagle3)", "/.../eagle3")."""
    from outdraft.engine.naming.roles import read_companions

    try:
        beside = read_companions(one.path)
    except ConfigError as error:
        return [(str(error), "")]
    return [
        (role if whose == "any" else f"{role} ({whose})", where)
        for role, named in beside.items()
        for whose, where in named.items()
    ]
