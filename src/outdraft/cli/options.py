"""A frozen dataclass is the definition of a command's flags: name, type, default and help in one place.

    temperature: float = flag(0.0, "0 is greedy")      ->  --temperature FLOAT   0 is greedy (default: 0.0)
    json: bool = flag(False, "...")                    ->  --json
    exact: bool | None = flag(None, "...")             ->  --exact / --no-exact, as for a default of True
    seed: int = flag(0, "...", also=("--random-seed",)) ->  --seed N, which users of others call --random-seed
    stop: tuple[str, ...] = flag((), "...")            ->  --stop TEXT, may be repeated
    drafter_options: Mapping[str, Any] = flag({}, ..)  ->  --drafter-options KEY=VALUE, repeated, or a JSON object
    prompt: str | None = argument(None, "...")         ->  a word without a flag
    sampling: S = field(metadata={"title": "sampling"})->  the flags of that dataclass, under a heading

Data in: a dataclass and words of a command line; data out: an instance of the dataclass.
"""

import argparse
import json
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_NAMES = {int: "N", float: "X", str: "TEXT"}
_NUMBERS = re.compile(r"\s*-?\d+(\.\d+)?(\s*,\s*-?\d+(\.\d+)?)+\s*")  # several, with commas between them


def flag(
    default: Any,
    help: str,
    *,
    short: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> Any:
    """A field that becomes `--its-name`. `also`: what users of other programs call it; these words are read too."""
    metadata = {"help": help, "short": short, "metavar": metavar, "choices": choices, "also": also}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def argument(default: Any, help: str, *, metavar: str | None = None) -> Any:
    """A field that is given by its position, and may be left out."""
    return field(default=default, metadata={"help": help, "positional": True, "metavar": metavar})


def same(options: type, name: str) -> Any:
    """A field that becomes the same flag as the field of this name in `options`."""
    found = next(one for one in fields(options) if one.name == name)
    return field(default=found.default, metadata=found.metadata)


def add_flags(parser: argparse._ActionsContainer, options: type) -> None:
    """Add every field of `options`, and of the dataclasses in it."""
    hints = get_type_hints(options)
    for one in fields(options):
        if is_dataclass(hints[one.name]):
            title = one.metadata["title"]
            section = parser.add_argument_group(title) if isinstance(parser, argparse.ArgumentParser) else parser
            add_flags(section, hints[one.name])  # type: ignore[arg-type]
        else:
            _add(parser, one, hints[one.name])


def build(options: type[T], given: argparse.Namespace) -> T:
    """The instance that a parsed command line stands for. Raises whatever `options` raises on bad values."""
    hints = get_type_hints(options)
    values: dict[str, Any] = {}
    for one in fields(options):  # type: ignore[arg-type]
        hint = hints[one.name]
        if is_dataclass(hint):
            values[one.name] = build(hint, given)  # type: ignore[arg-type]
            continue
        value = getattr(given, one.name)
        if get_origin(_plain(hint)) is tuple:
            value = tuple(value or ()) or default_of(one)  # None stays None where that is the default
        elif _is_mapping(hint):
            value = {key: item for part in value or () for key, item in part.items()}
        values[one.name] = value
    return options(**values)


def flag_name(field_name: str) -> str:
    """ "max_tokens" -> "max-tokens"; a word that Python keeps for itself ends with "_" in the field's name."""
    return field_name.rstrip("_").replace("_", "-")


def flag_fields(options: Any) -> "Iterator[Field[Any]]":
    """What becomes a flag of `options`, and of the dataclasses in it; not what is given by its position."""
    hints = get_type_hints(options)
    for one in fields(options):
        if is_dataclass(hints[one.name]):
            yield from flag_fields(hints[one.name])
        elif not one.metadata.get("positional"):
            yield one


def flag_names(options: type) -> list[str]:
    """Every word that is a flag of `options`."""
    each = ((f"--{flag_name(one.name)}", *one.metadata.get("also", ())) for one in flag_fields(options))
    return [name for names in each for name in names]


def placed_names(options: type) -> list[str]:
    """What is given by its position, without a flag."""
    return [one.name for one in fields(options) if one.metadata.get("positional")]


def default_of(one: "Field[Any]") -> Any:
    """The value of a field that is not given."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def given_names(options: Any) -> list[str]:
    """The fields of `options` that differ from their defaults."""
    return [one.name for one in fields(options) if getattr(options, one.name) != default_of(one)]


def _add(parser: argparse._ActionsContainer, one: "Field[Any]", hint: Any) -> None:
    meta, default = one.metadata, default_of(one)
    names = [*filter(None, [meta.get("short")]), f"--{flag_name(one.name)}", *meta.get("also", ())]
    settings: dict[str, Any] = {"help": _help(meta["help"], default), "dest": one.name, "default": default}
    if meta.get("choices"):
        settings["choices"] = meta["choices"]
    if _plain(hint) is bool:
        settings["action"] = "store_true" if default is False else argparse.BooleanOptionalAction
        parser.add_argument(*names, **settings)
        return
    if _is_mapping(hint):
        settings |= {"action": "append", "type": key_values, "metavar": "KEY=VALUE", "default": None}
    elif get_origin(_plain(hint)) is tuple:
        kind = get_args(_plain(hint))[0]
        metavar = meta.get("metavar") or _NAMES[kind]
        settings |= {"action": "append", "type": kind, "metavar": metavar, "default": None}
    else:
        kind = _plain(hint)
        settings["type"] = kind
        if not meta.get("choices"):
            settings["metavar"] = meta.get("metavar") or _NAMES[kind]
    if meta.get("positional"):
        settings.pop("dest")
        settings["metavar"] = meta.get("metavar") or one.name.upper()
        parser.add_argument(one.name, nargs="?", **settings)
    else:
        parser.add_argument(*names, **settings)


def key_values(text: str) -> dict[str, Any]:
    """`key=value`, the value read as JSON where it is JSON and as text where it is not; or one JSON object.

    Numbers with commas between them are a list, as in brackets.
    """
    if text.lstrip().startswith("{"):
        try:
            read = json.loads(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"not a JSON object: {error}") from error
        return dict(read)
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is neither key=value nor a JSON object")
    name = key.strip().replace("-", "_")
    try:
        return {name: json.loads(f"[{value}]" if _NUMBERS.fullmatch(value) else value)}
    except ValueError:
        return {name: value}


def _plain(hint: Any) -> Any:
    """The type of a value that is given: of `int | None` it is int."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _help(text: str, default: Any) -> str:
    shown = text.replace("%", "%%")
    if default in (None, False, (), {}, ""):
        return shown
    return f"{shown} (default: {'yes' if default is True else default})"
