"""Find a plug-in by name. There is no list to edit: a file in the kind's package is the registration.

`drafters/<name>.py` (or `drafters/<name>/__init__.py`) holds one `METHOD`; the same for `verify/` and `control/`.
A class from elsewhere is named as "package.module:ATTRIBUTE", where the attribute is a `Method`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_type_hints

from outdraft.core.errors import ConfigError
from outdraft.core.option_types import fits, in_words

if TYPE_CHECKING:
    from outdraft.core.policy import Arm  # its torch would delay `outdraft --help`

KINDS: Mapping[str, str] = {"drafter": "outdraft.drafters", "verifier": "outdraft.verify", "policy": "outdraft.control"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Where a method was published."""

    title: str
    year: int
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One plug-in: its name, its options and how to build it."""

    name: str
    kind: str  # a key of KINDS
    summary: str
    build: Callable[..., Any]  # drafter: (options, port); verifier: (options); policy: (options, arms of the drafter)
    options: type  # a frozen dataclass, every field with a default
    paper: Paper | None = None
    describe: Callable[[Any], Mapping[str, Any]] = lambda built: {}  # what it chose itself, for the resolved config
    arms: "Callable[[Any], tuple[Arm, ...]]" = lambda built: ()  # drafter: whom a policy may choose among; (): itself
    shapes: tuple[str, ...] = ("chain",)  # drafter: what it can propose, () nothing; verifier: what it can judge
    soft: Callable[[Any], bool] = lambda options: False  # verifier: judges greedy requests by laws at temperature 1

    @property
    def lossless(self) -> bool:
        """Whether the output keeps the target's law, with default options. A rule says so itself, once it is built."""
        return self.kind != "verifier" or bool(self.build(self.options()).lossless)


def names(kind: str) -> list[str]:
    """All plug-ins of a kind that ship with outdraft, sorted."""
    package = importlib.import_module(KINDS[kind])
    modules = [m.name for m in pkgutil.iter_modules(package.__path__)]
    return sorted(m for m in modules if m != "shared" and not m.startswith("_"))


def find(kind: str, name: str) -> Method:
    """The plug-in called `name`; raises `ConfigError` with the nearest name if there is none."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            method = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{kind} {name!r} cannot be imported: {error}; write package.module:METHOD") from error
        if not isinstance(method, Method):
            raise ConfigError(f"{kind} {name!r} is a {type(method).__name__}; it must be an outdraft Method")
        return method
    known = names(kind)
    if name not in known:
        raise ConfigError(f"unknown {kind} {name!r}{near_miss(name, known)}; known: {', '.join(known)}")
    method = importlib.import_module(f"{KINDS[kind]}.{name}").METHOD
    assert isinstance(method, Method)
    return method


def make_options(method: Method, given: Mapping[str, Any]) -> Any:
    """The plug-in's options from a mapping; unknown keys are errors that name the near miss, and
    so are values of another type than the field's.

    A field may carry other names that users know: `field(metadata={"aliases": ("prompt_lookup_max",)})`.
    """
    known = [f.name for f in fields(method.options)]
    other = _aliases(method)
    chosen: dict[str, Any] = {}
    for given_key, value in given.items():
        key = other.get(given_key, given_key)
        if key in chosen:
            raise ConfigError(f"option {key!r} of {method.kind} {method.name!r} is given twice (as {given_key!r} too)")
        chosen[key] = value
        if key not in known:
            listed = f"; it takes: {', '.join(known)}" if known else "; it takes none"
            raise ConfigError(
                f"unknown option {key!r} of {method.kind} {method.name!r}{near_miss(key, [*known, *other])}{listed}"
            )
    hints = get_type_hints(method.options)
    for key, value in chosen.items():
        if not fits(value, hints[key]):
            raise ConfigError(f"{key}={value!r} of {method.kind} {method.name!r} must be {in_words(hints[key])}")
    return method.options(**chosen)


def override(method: Method, options: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with those of `by` in their places, whichever of its names an option is given by."""
    own = _aliases(method)
    replaced = {own.get(key, key) for key in by}
    return {key: value for key, value in options.items() if own.get(key, key) not in replaced} | dict(by)


def _aliases(method: Method) -> dict[str, str]:
    """Other names of its options -> the options' own."""
    return {alias: f.name for f in fields(method.options) for alias in f.metadata.get("aliases", ())}


def option_defaults(method: Method) -> dict[str, Any]:
    """Name and default of every option."""
    return asdict(method.options())


def near_miss(word: str, known: list[str]) -> str:
    """', did you mean ...?' or nothing."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""
