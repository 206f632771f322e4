"""`outdraft methods`: the catalogue, as the registry finds it, and the recipes. Adding a file adds its row.

Drafters stand by what they must be given, with what they gain on a real model where that was measured. Before them
stand those to begin with: the default, the two that gain most and need nothing, and the one that gains most with a head
or a draft model. Plug-ins of other packages stand beside ours, with the module that they come from.
"""

from dataclasses import asdict, dataclass
from statistics import fmean
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import argument, flag
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

if TYPE_CHECKING:
    from outdraft.core.registry import AnyMethod

SUMMARY = "list every drafter, verifier, policy and recipe, or describe one"
EPILOG = """examples:
  outdraft methods                       # all of them
  outdraft methods ngram                 # one, with its options
  outdraft methods my_module:METHOD      # a plug-in, by its module
  outdraft methods --kind policy --options"""

RECIPE = "recipe"
FIRST = "begin with these"
DEFAULT = {"summary": "the default: look-ups, and the head or draft that is there; measured cost chooses"}
_TRAINS_TARGET = " (the paper trains the target too)"
_TITLES = {
    FIRST: "",
    "nothing": "drafters that need nothing but the model",
    "draft_model": "drafters that need a smaller model (--draft-model DIR)",
    "head": "drafters that need a head trained for the model (--head DIR; `outdraft train` makes one)",
    "texts": "drafters that need texts: --datastore FILE, or --reference FILE with each prompt",
    "verifier": "verifiers: which guesses stay",
    "policy": "policies: how much is guessed",
    RECIPE: "recipes: drafter x shape x verifier x policy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which plug-ins to list, and how."""

    name: str | None = argument(None, "only the methods of this name, with their options")
    kind: str | None = flag(None, "only this kind", choices=("drafter", "verifier", "policy", RECIPE))
    options: bool = flag(False, "also the options of each, with their defaults")
    json: bool = flag(False, "machine output: a list of {name, kind, lossless, paper, ...}")


def run(options: Options) -> int:
    """Print the table, or JSON."""
    from outdraft.cli.console import make_console, say, write_json
    from outdraft.core.registry import installed

    entries = _asked(options)
    if options.json:
        write_json(entries)
        return 0

    from rich.markup import escape
    from rich.table import Table

    from outdraft.bench.measured import in_words, read_measured

    console = make_console()
    if options.name is not None:
        for entry in entries:
            say(console, "\n".join(_told(entry, console.width)))
        return 0
    measured = read_measured()
    for title, shown in _groups(entries, whole=options.kind is None and not options.options):
        gained = not options.options and any(entry.get("measured") for entry in shown)
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for heading in ("name", "lossless", *([f"on {measured['target']}"] * gained), "what it does", "paper"):
            table.add_column(heading, no_wrap=heading in ("name", "lossless"), overflow="fold")
        for entry in shown:
            best = in_words(entry.get("measured") or {}).partition(",")[0]
            lossless = "yes" if entry["lossless"] else "NO"
            table.add_row(entry["name"], lossless, *([best] * gained), escape(_what(entry)), _paper(entry["paper"]))
        console.print(table)
        console.print()
    for one in installed():  # a plug-in that cannot be used is reported, and the others are listed
        if isinstance(one.found, ConfigError):
            say(console, f"left out: {one.found}", style="dim")
    return 0


def _asked(options: Options) -> list[dict[str, Any]]:
    """What is to be shown. Raises `ConfigError` for a name that no method has."""
    from outdraft.core.registry import load

    if options.name is None:
        return catalogue(options.kind, with_options=options.options)
    if ":" in options.name:  # package.module:METHOD
        method = load(options.name, f"method {options.name!r}")
        return [_entry(options.name, options.name, method, with_options=True)]
    listed = catalogue(options.kind)
    known = {entry["name"]: entry["name"] for entry in listed}
    also = {other: entry["name"] for entry in listed for other in entry.get("also_called", ())}
    if (name := {**also, **known}.get(options.name)) is None:
        miss = near_miss(options.name.lower(), [*known, *also])
        raise ConfigError(
            f"there is no {options.kind or 'method'} {options.name!r}{miss}; `outdraft methods` lists them"
        )
    return catalogue(options.kind, with_options=True, only=name)


def _groups(entries: list[dict[str, Any]], *, whole: bool) -> "list[tuple[str, list[dict[str, Any]]]]":
    """Title and entries: drafters by what they must be given. `whole`: with those to begin with before all others."""
    groups: dict[str, list[dict[str, Any]]] = {title: [] for title in _TITLES}
    for entry in entries:
        needs = next((need for need in entry.get("needs", ()) if need in _TITLES), "texts")
        groups[(needs if entry["needs"] else "nothing") if entry["kind"] == "drafter" else entry["kind"]].append(entry)
    if whole:
        groups[FIRST] = [{**entry, **DEFAULT} for entry in groups[RECIPE] if entry["name"] == "auto"]
        groups[FIRST] += _best(groups["nothing"])[:2] + _best(groups["draft_model"] + groups["head"])[:1]
    return [(_TITLES[key] or key, group) for key, group in groups.items() if group]


def _best(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that gain over all sets of prompts together, the most first."""
    mean = {
        one["name"]: fmean(row["speedup"] for row in one["measured"].values()) for one in entries if one["measured"]
    }
    gaining = [entry for entry in entries if mean.get(entry["name"], 0.0) > 1.0]
    return sorted(gaining, key=lambda entry: -mean[entry["name"]])


def catalogue(kind: str | None = None, *, with_options: bool = False, only: str | None = None) -> list[dict[str, Any]]:
    """One plain record for each method, or for each of the name `only`: reading what options mean takes a while."""
    from outdraft.core.registry import KINDS, find, installed, names

    listed = [(name, "outdraft", find(one, name)) for one in KINDS for name in names(one)]
    listed += [(one.name, one.place, one.found) for one in installed() if not isinstance(one.found, ConfigError)]
    listed = [one for one in listed if kind in (None, one[2].kind) and only in (None, one[0])]
    order = list(KINDS)
    listed.sort(key=lambda one: order.index(one[2].kind))
    entries = [_entry(name, place, method, with_options=with_options) for name, place, method in listed]
    return entries + (_recipes(with_options=with_options, only=only) if kind in (None, RECIPE) else [])


def _entry(name: str, place: str, method: "AnyMethod", *, with_options: bool) -> dict[str, Any]:
    from outdraft.bench.measured import gains
    from outdraft.core.registry import option_defaults
    from outdraft.engine.naming.needs import needs_of

    entry: dict[str, Any] = {"name": name, "kind": method.kind, "lossless": method.lossless, "from": place}
    entry["also_called"] = list(getattr(method, "also_called", ()))
    entry["paper"] = asdict(method.paper) if method.paper else None
    entry["summary"] = method.summary if place == "outdraft" else f"{method.summary} (from {place})"
    if method.kind == "drafter":
        entry["needs"], entry["measured"] = sorted(needs_of(name)), gains(name)
    if with_options:
        entry["options"], entry["about"] = option_defaults(method), _about(method)
    return entry


def _about(method: "AnyMethod", prefix: str = "") -> dict[str, dict[str, Any]]:
    """Option -> its meaning, its values and its other names."""
    from outdraft.options.words import option_words

    return {
        f"{prefix}{one.name}": {"meaning": one.meaning, "values": one.values, "aliases": list(one.aliases)}
        for one in option_words(method.options)
    }


def _recipes(*, with_options: bool, only: str | None) -> list[dict[str, Any]]:
    """The same of each recipe: drafter, shape, verifier and policy in the summary's place."""
    from outdraft.bench.measured import gains
    from outdraft.core.registry import KINDS, find
    from outdraft.engine.naming.recipe import read_recipe, recipe_names

    entries = []
    for name in recipe_names():
        if only not in (None, name):
            continue
        recipe = read_recipe(name)
        parts = {"drafter": recipe.drafter, "verifier": recipe.verifier, "policy": recipe.policy}
        summary = f"{recipe.drafter.name} x {recipe.shape} x {recipe.verifier.name} x {recipe.policy.name}"
        entry: dict[str, Any] = {
            "name": name,
            "kind": RECIPE,
            "lossless": recipe.lossless,
            "measured": gains(name),
            "paper": asdict(recipe.paper) if recipe.paper else None,
            **{kind: part.name for kind, part in parts.items()},
            "shape": recipe.shape,
            "modifies_target": recipe.modifies_target,
            "summary": summary + _TRAINS_TARGET * recipe.modifies_target,
        }
        if with_options:
            entry["options"] = {
                f"{kind}.{key}": value for kind, part in parts.items() for key, value in part.options.items()
            }
            entry["about"] = {}
            for kind in KINDS:
                entry["about"] |= _about(find(kind, parts[kind].name), f"{kind}.")
        entries.append(entry)
    return entries


def _told(entry: dict[str, Any], width: int) -> list[str]:
    """One method, each of its options explained, in lines of at most `width` characters where words allow it."""
    from outdraft.bench.measured import in_words, read_measured
    from outdraft.core.published import page

    paper = entry["paper"]
    lines = _wrapped(f"{entry['name']} ({entry['kind']}): {_summary(entry)}", width, 0)
    kept = "lossless: the text keeps the target's distribution"
    lines += [f"  {kept}" if entry["lossless"] else "  lossy: the text may have another distribution"]
    lines += _wrapped(f"paper: {paper['title']}, {paper['year']}, {paper['link']}", width, 2) if paper else []
    lines += [f"  needs: {', '.join(entry['needs']).replace('_', ' ')}"] if entry.get("needs") else []
    if gained := entry.get("measured"):
        lines += _wrapped(f"measured on {read_measured()['target']}: {in_words(gained)}", width, 2)
    lines += _wrapped(_heading(entry), width, 2)
    for name, value in entry["options"].items():
        about = entry["about"][name]
        other = f" Also called {', '.join(about['aliases'])}." if about["aliases"] else ""
        role = value[1:].replace("_", "-") if isinstance(value, str) and value.startswith("@") else ""
        given = f" (what you give with --{role})" if role else ""
        lines += [
            *_wrapped(f"{name} = {value!r}{given}", width, 4),
            *_wrapped(f"{about['meaning']} Value: {about['values']}.{other}", width, 8),
        ]
    place = {"outdraft": f"methods/{entry['name']}.md", None: "recipes.md"}.get(entry.get("from"), "add_a_method.md")
    return [*lines, f"  more: {page(place)}", ""]


def _heading(entry: dict[str, Any]) -> str:
    """What stands above the options: how one is given."""
    if not entry["options"]:
        return "no options"
    if entry["kind"] == RECIPE:
        return "what it sets; copy the recipe's file to set something else:"
    kind, name = entry["kind"], entry["name"]
    return (
        f"options with their defaults (give one as --{kind}-options NAME=VALUE, in Python {kind}="
        f"{{'name': {name!r}, NAME: VALUE}}):"
    )


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    lines = TextWrapper(max(width, 40), break_long_words=False, break_on_hyphens=False)
    lines.initial_indent, lines.subsequent_indent = " " * indent, " " * (indent + 2 * (indent < 8))
    return lines.wrap(text)


def _summary(entry: dict[str, Any]) -> str:
    """What it does; of a recipe, which parts it is made of."""
    if entry["kind"] != RECIPE:
        return str(entry["summary"])
    parts = [f"{part} {entry[part]}" for part in ("drafter", "shape", "verifier", "policy")]
    return ", ".join(parts) + (_TRAINS_TARGET if entry["modifies_target"] else "")


def _what(entry: dict[str, Any]) -> str:
    given = entry.get("options") or {}
    return "\n".join([entry["summary"], *(f"  {name} = {value!r}" for name, value in given.items())])


def _paper(paper: dict[str, Any] | None) -> str:
    return f"{paper['year']}  {paper['link'].removeprefix('https://')}" if paper else ""
