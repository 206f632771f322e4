"""The models of a fuzz run, as directories that `LLM` and `transformers` read: tiny random ones, and the zoo's target.

"llama/wide/1"   architecture, shape, seed of the weights; every tiny model has a tokenizer, so that texts and stop
                 strings are judged too
"zoo"            the zoo's target
"llama/wide/1@int8"   the same with its weights rounded

Data in: a name; data out: a directory, made once in the run's own folder.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models

from lab.fuzz.asks import Language, zoo_texts
from outdraft import zoo
from outdraft.codecs.text import TextCodec
from outdraft.models.files.load import load_model, save_model
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.tiny import TINY_ARCHITECTURES, random_decoder, tiny_config

ZOO = "zoo"
VOCAB, MAX_LEN, END = 61, 640, 3
SHAPES: Mapping[str, dict[str, Any]] = {  # "wide" ones are what the native kernels can pack
    "narrow": {"layers": 2, "hidden": 32},
    "wide": {"layers": 3, "hidden": 64, "inner": 96, "heads": 2, "kv_heads": 1},
}
ROUNDINGS = {"int8": QuantConfig(bits=8, group_size=0), "int4": QuantConfig(bits=4, group_size=32)}
NATIVE = ("llama", "mistral", "qwen2", "qwen3")
TINY = tuple(f"{name}/{shape}/{seed}" for name in TINY_ARCHITECTURES for seed, shape in enumerate(SHAPES, 1))
PACKABLE = tuple(name for name in TINY if "/wide/" in name and name.startswith(NATIVE))


@dataclass(slots=True)
class Models:
    """Makes models in `folder` as they are asked for."""

    folder: Path
    _sides: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def directory(self, name: str) -> Path:
        base, _, rounding = name.partition("@")
        if not rounding and base == ZOO:
            return zoo.path("target")
        place = self.folder / name.replace("/", "-")
        if not place.exists():
            part = place.with_name(f".{place.name}")
            shutil.rmtree(part, ignore_errors=True)
            self._write(part, base, rounding)
            part.rename(place)
        return place

    def side(self, name: str, row: DrafterRow) -> Mapping[str, Any]:
        """What a row makes for this tiny model, in float32: options that name files. Made once."""
        key = f"{name}-{row.name}".replace("/", "-").replace(":", "-")
        if key not in self._sides:
            place = self.folder / f"side-{key}"
            place.mkdir()
            self._sides[key] = row.side(load_model(self.directory(name), dtype="float32"), place)
        return self._sides[key]

    def language(self, name: str) -> Language:
        """What requests to `name` are made of."""
        if not name.startswith(ZOO):
            spelling = Spelling()
            return Language(vocab_size=VOCAB, stops=(*spelling.names, "ab", "cd", "aba"), ends=(END,))
        codec = TextCodec.load(self.directory(ZOO))
        texts = tuple(tuple(codec.encode(text)) for text in zoo_texts())
        stops = (" the", "e", "\n", ". ", "self", ", and", "):", "tion")
        ends = tuple(sorted(codec.eos_token_ids))
        return Language(vocab_size=codec.vocab_size, stops=stops, texts=texts, ends=ends, longest=16, room=300)

    def _write(self, place: Path, base: str, rounding: str) -> None:
        if rounding:
            source = self.directory(base)
            save_model(quantize_decoder(load_model(source), ROUNDINGS[rounding]), place)
            for path in source.glob("*token*"):
                shutil.copyfile(path, place / path.name)
            return
        architecture, shape, seed = base.split("/")
        config = tiny_config(architecture, vocab=VOCAB, max_len=MAX_LEN, eos_ids=(END,), **SHAPES[shape])
        save_model(random_decoder(config, seed=int(seed), dtype=torch.float32, exact=False), place)
        Spelling().tokenizer.save(str(place / "tokenizer.json"))


class Spelling:
    """The tiny models' tokenizer: twelve letters, and pairs of pairs of them up to four letters."""

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        """In the order in which they were made."""
        rng, names = Random(0), list("abcdefghijkl")
        made: list[tuple[str, str]] = []
        while len(names) < VOCAB:
            left, right = rng.choice(names), rng.choice(names)
            if len(left + right) <= 4 and left + right not in names:
                names.append(left + right)
                made.append((left, right))
        return made

    @property
    def names(self) -> list[str]:
        """What each id stands for."""
        return [*"abcdefghijkl", *(left + right for left, right in self.merges)]

    @property
    def tokenizer(self) -> Tokenizer:
        """The same vocabulary and merges as a tokenizer of the package `tokenizers`."""
        names = {name: i for i, name in enumerate(self.names)}
        tokenizer = Tokenizer(models.BPE(vocab=names, merges=self.merges))
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer
