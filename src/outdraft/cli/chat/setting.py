"""`/set NAME=VALUE`: a flag of sampling, read as on the command line."""

import argparse
from dataclasses import fields, replace
from typing import Any, NoReturn, TypeVar

from outdraft.cli.flags import SamplingFlags
from outdraft.cli.options import add_flags, build, default_of, flag_name
from outdraft.options.errors import RequestError
from outdraft.options.near_miss import near_miss

T = TypeVar("T", bound=SamplingFlags)
_SHOWN = ("max_tokens", "temperature", "top_p", "seed")


def told_settings(sampling: SamplingFlags) -> str:
    """The usual ones, and what differs from its default."""
    each = [(one.name, getattr(sampling, one.name), default_of(one)) for one in fields(sampling)]
    return " ".join(
        f"{name}={'none' if value is None else value}"
        for name, value, usual in each
        if name in _SHOWN or value != usual
    )


def changed(sampling: T, words: str) -> T:
    """The settings with one changed; without a value it is the default. Raises `RequestError` for what is none."""
    name, equals, value = words.partition("=")
    name, value = name.strip().replace("-", "_"), value.strip()
    known = {one.name: one for one in fields(sampling)}
    if name not in known or not equals:
        raise RequestError(
            f"/set NAME=VALUE: {name!r} is no setting{near_miss(name, known)}; one of {', '.join(known)}"
        )
    found: Any = default_of(known[name])
    if value and value.lower() not in ("none", "off", "false"):
        given = f"--{flag_name(name)}" + ("" if isinstance(found, bool) else f"={value}")
        parser = _Parser(add_help=False, allow_abbrev=False)
        add_flags(parser, type(sampling))
        found = getattr(build(type(sampling), parser.parse_args([given])), name)
    made = replace(sampling, **{name: found})
    made.params()  # what is out of range is refused
    return made


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RequestError(message.removeprefix("argument --"))
