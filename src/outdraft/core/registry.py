"""Find a plug-in by name. There is no list to edit: a file in the kind's package is the registration.

"ngram"               drafters/ngram.py or drafters/ngram/__init__.py holds one `METHOD`; so in verify/ and control/
"mine"                an entry point of the group "outdraft.methods" in an installed package (docs/add_a_method.md)
"pkg.module:METHOD"   anything that can be imported
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias, get_type_hints, overload

from outdraft.core import method as contract
from outdraft.options.checked import check_value
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.options.shown import shown

Kind: TypeAlias = contract.Kind
AnyDrafter: TypeAlias = contract.DrafterMethod[Any, Any, Any]
AnyRule: TypeAlias = contract.RuleMethod[Any]
AnyPolicy: TypeAlias = contract.PolicyMethod[Any]
AnyMethod: TypeAlias = AnyDrafter | AnyRule | AnyPolicy

KINDS: Mapping[Kind, str] = {
    "drafter": "outdraft.drafters",
    "verifier": "outdraft.verify",
    "policy": "outdraft.control",
}
_TYPES: Mapping[Kind, type[AnyMethod]] = {
    "drafter": contract.DrafterMethod,
    "verifier": contract.RuleMethod,
    "policy": contract.PolicyMethod,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A plug-in of another package, or why it cannot be used."""

    name: str
    place: str  # "package.module:ATTRIBUTE"
    found: AnyMethod | ConfigError


def names(kind: Kind) -> list[str]:
    """All plug-ins of a kind that ship with outdraft, sorted."""
    package = importlib.import_module(KINDS[kind])
    modules = [m.name for m in pkgutil.iter_modules(package.__path__)]
    return sorted(m for m in modules if m != "shared" and not m.startswith("_"))


def installed() -> list[Installed]:
    """Plug-ins that other packages bring, by name."""
    return [
        Installed(name=entry.name, place=entry.value, found=_try(entry.value, f"plug-in {entry.name!r}"))
        for entry in _entry_points()
    ]


def _entry_points() -> list[EntryPoint]:
    """All of our group, by name, not loaded."""
    return sorted(entry_points(group="outdraft.methods"), key=lambda entry: entry.name)


def _try(place: str, who: str) -> AnyMethod | ConfigError:
    try:
        return load(place, who)
    except ConfigError as error:
        return error


@overload
def find(kind: Literal["drafter"], name: str) -> AnyDrafter: ...
@overload
def find(kind: Literal["verifier"], name: str) -> AnyRule: ...
@overload
def find(kind: Literal["policy"], name: str) -> AnyPolicy: ...
@overload
def find(kind: Kind, name: str) -> AnyMethod: ...
def find(kind: Kind, name: str) -> AnyMethod:
    """The plug-in called `name`; raises `ConfigError` with the nearest name if there is none."""
    known, name = names(kind), check_value(kind, name, str)
    if ":" in name:
        method = load(name, f"{kind} {shown(name)}")
    elif name in known:
        method = importlib.import_module(f"{KINDS[kind]}.{name}").METHOD
    else:
        entries = [entry for entry in _entry_points() if entry.name == name]
        methods = [load(entry.value, f"{kind} {name!r}") for entry in entries]
        own = [method for method in methods if isinstance(method, _TYPES[kind])]
        if not (own or methods):
            known += [entry.name for entry in _entry_points()]
            raise ConfigError(f"unknown {kind} {shown(name)}{near_miss(name, known)}; known: {', '.join(known)}")
        method = (own or methods)[0]
    if not isinstance(method, _TYPES[kind]):
        raise ConfigError(f"{kind} {name!r} is a {type(method).__name__}; it must be a {_TYPES[kind].__name__}")
    return method


def load(place: str, who: str) -> AnyMethod:
    """What "package.module:ATTRIBUTE" names. Raises `ConfigError` for a plug-in of another contract than ours."""
    module, _, attribute = place.partition(":")
    try:
        method = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        lacking = error.name or ""
        if lacking.partition(".")[0] == "outdraft" and lacking != module:
            raise ConfigError(f"{who} was written for another contract of plug-ins{_changes()}: {error}") from error
        raise ConfigError(f"{who} cannot be imported: {error}; write package.module:METHOD") from error
    except Exception as error:  # a stranger's module, which may raise anything
        raise ConfigError(f"{who} cannot be imported: {error}; write package.module:METHOD") from error
    if not isinstance(method, contract.DrafterMethod | contract.RuleMethod | contract.PolicyMethod):
        raise ConfigError(
            f"{who} is a {type(method).__name__}; it must be a DrafterMethod, a RuleMethod or a PolicyMethod"
        )
    if method.contract is None and module.partition(".")[0] == "outdraft":
        return method  # one that ships changes with the contract
    if method.contract is None:
        raise ConfigError(
            f"{who} does not say which contract of plug-ins it was written for: write contract={contract.CONTRACT} in "
            f"its {type(method).__name__}(...) if it is this one (docs/add_a_method.md)"
        )
    if method.contract != contract.CONTRACT:
        raise ConfigError(f"{who} was written for contract {method.contract} of plug-ins{_changes()}")
    return method


def _changes() -> str:
    listed = "; ".join(f"{version}: {change}" for version, change in contract.CHANGES.items())
    return f", and this outdraft has contract {contract.CONTRACT} ({listed}; see docs/add_a_method.md)"


def make_options(method: "contract.Method[contract.Options]", given: Mapping[str, Any]) -> "contract.Options":
    """The plug-in's options from a mapping, by `read_options`."""
    return read_options(method.options, given, f"{method.kind} {method.name!r}")


def read_options(options: "type[contract.Options]", given: Mapping[str, Any], whose: str) -> "contract.Options":
    """Options from a mapping; unknown keys are errors that name the near miss, and so are values of another type.

    A field may carry other names that users know: `field(metadata={"aliases": ("prompt_lookup_max",)})`.
    """
    known = [f.name for f in fields(options)]
    other = _aliases(options)
    chosen: dict[str, Any] = {}
    for given_key, value in check_value(f"options of {whose}", given, Mapping).items():
        key = check_value(f"a name among the options of {whose}", given_key, str)
        key = other.get(key, key)
        if key in chosen:
            raise ConfigError(f"option {key!r} of {whose} is given twice (as {given_key!r} too)")
        chosen[key] = value
        if key not in known:
            listed = f"; it takes: {', '.join(known)}" if known else "; it takes none"
            raise ConfigError(f"unknown option {shown(key)} of {whose}{near_miss(key, [*known, *other])}{listed}")
    hints = get_type_hints(options)
    return options(**{key: check_value(key, value, hints[key], of=whose) for key, value in chosen.items()})


def override(
    method: "contract.Method[contract.Options]", options: Mapping[str, Any], by: Mapping[str, Any]
) -> dict[str, Any]:
    """`options` with those of `by` in their places, whichever of its names an option is given by."""
    own, by = _aliases(method.options), check_value(f"{method.kind}_options", by, Mapping[str, Any])
    replaced = {own.get(key, key) for key in by}
    return {key: value for key, value in options.items() if own.get(key, key) not in replaced} | dict(by)


def _aliases(options: type[contract.IsDataclass]) -> dict[str, str]:
    """Other names of options -> their own."""
    return {alias: f.name for f in fields(options) for alias in f.metadata.get("aliases", ())}


def option_names(method: "contract.Method[contract.Options]") -> list[str]:
    """Names and aliases of a plug-in's options."""
    return [name for f in fields(method.options) for name in (f.name, *f.metadata.get("aliases", ()))]


def option_defaults(method: "contract.Method[contract.Options]") -> dict[str, Any]:
    """Name and default of every option."""
    return asdict(method.options())
