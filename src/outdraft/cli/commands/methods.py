"""`outdraft methods`: the catalogue, as the registry finds it. Adding a method's file adds its row."""

from dataclasses import dataclass
from typing import Any

from outdraft.cli.options import flag

SUMMARY = "list every drafter, verifier and policy"


_PLURALS = {"drafter": "drafters", "verifier": "verifiers", "policy": "policies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to list."""

    kind: str | None = flag(None, "only this kind", choices=("drafter", "verifier", "policy"))
    options: bool = flag(False, "also the options of each, with their defaults")
    json: bool = flag(False, "machine output: a list of {name, kind, lossless, paper}")


def run(options: Options) -> int:
    """Print the table, or JSON."""
    from outdraft.cli.console import make_console, write_json

    entries = catalogue(options.kind, with_options=options.options)
    if options.json:
        write_json(entries)
        return 0

    from rich.table import Table

    console = make_console()
    for kind in dict.fromkeys(entry["kind"] for entry in entries):
        table = Table(title=_PLURALS[kind], title_justify="left", title_style="bold", box=None, pad_edge=False)
        for heading in ("name", "lossless", "what it does", "paper"):
            table.add_column(heading, no_wrap=heading in ("name", "lossless"))
        for entry in entries:
            if entry["kind"] == kind:
                lossless = "yes" if entry["lossless"] else "NO"
                table.add_row(entry["name"], lossless, _what(entry), _paper(entry["paper"]))
        console.print(table)
        console.print()
    return 0


def catalogue(kind: str | None = None, *, with_options: bool = False) -> list[dict[str, Any]]:
    """One plain record for each method."""
    from dataclasses import asdict

    from outdraft.core.registry import KINDS, find, names, option_defaults

    entries = []
    for one in [kind] if kind else KINDS:
        for name in names(one):
            method = find(one, name)
            entry: dict[str, Any] = {"name": name, "kind": one, "lossless": method.lossless}
            entry["paper"] = asdict(method.paper) if method.paper else None
            entry["summary"] = method.summary
            if with_options:
                entry["options"] = option_defaults(method)
            entries.append(entry)
    return entries


def _what(entry: dict[str, Any]) -> str:
    given = entry.get("options") or {}
    return "\n".join([entry["summary"], *(f"  {name} = {value!r}" for name, value in given.items())])


def _paper(paper: dict[str, Any] | None) -> str:
    return f"{paper['year']}  {paper['link'].removeprefix('https://')}" if paper else ""
