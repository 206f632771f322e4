"""Whole files of every kind, made once in an empty directory, and how each is read.

A case damages one file of a copy. What reads it is what a user would call: an engine that writes a few tokens, a
recipe, a look-up. Engines stay open, so that a file can change under them.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lab.mutated_files.block_files import VOCABULARIES, damage_gguf, write_blocks
from lab.mutated_files.mutate import damage_bytes, damage_json
from lab.strange.stage import CONTEXT, LETTERS, VOCAB, Stage
from outdraft import zoo
from outdraft.core.learner import LearnMethod
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.skip import Skip
from outdraft.drafters.shared.look_up.datastore.documents import read_documents
from outdraft.drafters.shared.own_layers.skip_sets import save_skip
from outdraft.drafters.shared.trees.template import TemplateFile, read_template
from outdraft.engine.llm import LLM
from outdraft.engine.naming.roles import read_companions
from outdraft.kernels.library import wanted_kind
from outdraft.models.files.gguf_write import write_gguf
from outdraft.models.files.load import load_model, open_weights, save_model
from outdraft.models.remake.packed_cache import place_of
from outdraft.models.remake.pieces import Pieces
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.params import SamplingParams
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.record import read_record
from outdraft.weights.pickled import read_pickled
from outdraft.weights.safetensors import INDEX, SINGLE, TensorStore, save_tensors

PROMPT = {"prompt_token_ids": [1, 2, 3, 4, 5, 1, 2, 3]}
FEW = SamplingParams(max_tokens=3)
Damage = Callable[[bytes, Random], tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One file of a whole thing: which, how it is damaged, and what reads the thing."""

    name: str
    home: Path  # the whole thing: a directory that is copied
    file: str  # in it
    damage: Damage
    open: Callable[[Path], Callable[[], object]]  # given the copy: what reads it, and may be called again

    def moved_to(self, whole: Path) -> Path:
        """Where its file lies in the copy, if that is elsewhere once it is open."""
        return next(whole.rglob("*" + Path(self.file).suffix))


class Files:
    """The whole things, in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.stage = Stage(directory)
        self.directory = directory
        self.models = directory / "models"
        if not self.models.exists():
            self._make()

    def subjects(self) -> list[Subject]:
        """Every kind that outdraft reads; those that hold most come several times."""
        made = []
        for home in sorted(self.models.iterdir()):
            for path in sorted(home.iterdir()):
                damage = _DAMAGES.get(path.suffix, damage_bytes)
                heads = {name: self._head(name) for name in _heads()}
                blocks = dict.fromkeys(VOCABULARIES, open_blocks)
                opened = {"gguf": _open_gguf, "packed": self._stream, **blocks, **heads}.get(home.name, _open_model)
                if not (home.name == "packed" and path.suffix != ".packed"):
                    name = f"{home.name}/{path.name}"
                    made.append(Subject(name=name, home=home, file=path.name, damage=damage, open=opened))
        weighty = [one for one in made if one.home.name in ("llama", "gguf", "packed", "int4")]
        return [*made, *weighty, *self._others(), *self._others()]

    def _others(self) -> list[Subject]:
        def subject(name: str, read: Callable[[Path], object], damage: Damage = damage_bytes) -> Subject:
            home = self.directory / "others"
            return Subject(name=name, home=home, file=name, damage=damage, open=lambda path: partial(read, path))

        def store(drafter: str) -> Subject:
            return Subject(
                name="store",
                home=self.directory / "others",
                file="store",
                damage=damage_bytes,
                open=lambda path: _writing(self.stage.llm.with_drafter({"name": drafter, "datastore": str(path)})),
            )

        recipe = subject("recipe.toml", lambda path: self.stage.llm.with_drafter(path).generate(PROMPT, FEW))
        return [
            recipe,
            store("rest"),
            store("sam"),
            subject("skip.json", self._skip, damage_json),
            subject("documents.jsonl", lambda path: list(read_documents(path))),
            subject("heads.pt", lambda path: read_pickled(path)),
            subject("tree.json", lambda path: read_template(path), damage_json),
            subject("training.json", lambda path: read_record(path.parent), damage_json),
        ]

    def _skip(self, path: Path) -> object:
        return self.stage.llm.with_drafter({"name": "draft_verify", "skip": str(path)}).generate(PROMPT, FEW)

    def _head(self, drafter: str) -> Callable[[Path], Callable[[], object]]:
        return lambda home: _writing(self.stage.zoo.with_drafter({"name": drafter, "model": str(home)}))

    def _make(self) -> None:
        made = self.directory / "half"
        for name in ("llama", "gpt2", "gpt_neox", "mistral", "qwen3"):
            config = tiny_config(name, vocab=VOCAB, layers=3, hidden=64, inner=96, heads=2, kv_heads=1, max_len=CONTEXT)
            save_model(random_decoder(config, seed=2, dtype=torch.bfloat16, exact=False), made / name)
        for name in ("sharded", "int4", *["packed"] * (wanted_kind() is not None)):
            shutil.copytree(made / "llama", made / name)
        save_model(quantize_decoder(load_model(made / "int4"), QuantConfig(bits=4, group_size=0)), made / "int4")
        _shard(made / "sharded")
        for home in made.iterdir():
            shutil.copyfile(self.stage.target / "tokenizer.json", home / "tokenizer.json")
        for name, text in _BESIDE.items():
            (made / "llama" / name).write_text(json.dumps(text))
        (made / "llama/chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        (made / "gguf").mkdir()
        _save_gguf(made / "llama", made / "gguf/model.gguf")
        for words in VOCABULARIES:
            (made / words).mkdir()
            write_blocks(made / words / "model.gguf", words)
        for name, method in _heads().items():  # of the zoo's target, untrained
            method.new(method.options(), load_model(zoo.path("target")), 0).save(made / name)
        others = self.directory / "others"
        others.mkdir()
        shutil.copyfile(self.stage.store, others / "store")
        (others / "recipe.toml").write_text(_RECIPE)
        torch.save({"0.weight": torch.zeros(3, 4), "0.bias": torch.ones(4)}, others / "heads.pt")
        save_skip(Skip(frozenset({1}), frozenset({1})), 3, others / "skip.json", score=1.5)
        TemplateFile(paths=((0,), (1,), (0, 0)), accuracies=((0.5, 0.2), (0.4, 0.1))).write(others / "tree.json")
        (others / "training.json").write_text(json.dumps(_RECORD))
        (others / "documents.jsonl").write_text('{"text": "abc"}\n{"token_ids": [1, 2]}\n["a", {"b": "c"}]\n' * 5)
        made.rename(self.models)
        if not (self.models / "packed").exists():  # there are no kernels that stream
            return
        self._stream(self.models / "packed")()
        packed = next((self.models / "packed/outdraft/packed").glob("*.packed"))
        packed.rename(self.models / "packed" / "weights.packed")
        shutil.rmtree(self.models / "packed/outdraft")

    def _stream(self, home: Path) -> Callable[[], object]:
        """Streamed from the packed file in `home`; the model itself is always the same one."""
        os.environ["XDG_CACHE_HOME"] = str(home)
        if (home / "weights.packed").exists():
            place = home / "outdraft/packed" / self._packed_name
            place.parent.mkdir(parents=True)
            (home / "weights.packed").rename(place)
        return _writing(LLM(self.models / "packed", drafter="none", dtype="bfloat16", weights_memory="150KB"))

    @cached_property
    def _packed_name(self) -> str:
        return place_of(Pieces(stored=open_weights(self.models / "packed", "bfloat16")), cache=Path()).name


def damage_safetensors(data: bytes, dice: Random) -> tuple[str, bytes]:
    """Of the header's document, half the time; the length before it then fits, or not."""
    if dice.random() < 0.5:
        return damage_bytes(data, dice)
    (length,) = struct.unpack_from("<Q", data)
    told, header = damage_json(data[8 : 8 + length], dice)
    said = len(header) if dice.random() < 0.9 else length
    return f"header: {told}", struct.pack("<Q", said) + header + data[8 + length :]


def _writing(llm: LLM) -> Callable[[], object]:
    return lambda: llm.generate(PROMPT, FEW)


def _open_model(home: Path) -> Callable[[], object]:
    read_companions(home)
    llm = LLM(home, drafter="none", exact=False)
    if (
        (home / "chat_template.jinja").exists()
        and llm.tokenizer is not None
        and llm.tokenizer.chat_template is not None
    ):
        llm.tokenizer.chat_template.render([{"role": "user", "content": "abc"}])
    return lambda: llm.generate("abcabc", FEW)


def _open_gguf(home: Path) -> Callable[[], object]:
    return _writing(LLM(home / "model.gguf", drafter="none", exact=False))


def open_blocks(home: Path, dtype: str = "auto") -> Callable[[], object]:
    """A file of `block_files`, which has words."""
    llm = LLM(home / "model.gguf", drafter="none", exact=False, dtype=dtype)
    return lambda: llm.generate("abcabc", FEW)


def _save_gguf(source: Path, path: Path) -> None:
    """The model with a vocabulary of one merge, for a GGUF file without any is none."""
    names = [*LETTERS[: VOCAB - 1], LETTERS[1] + LETTERS[2]]
    tokenizer = Tokenizer(
        models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[(LETTERS[1], LETTERS[2])])
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    with TemporaryDirectory() as beside:
        home = Path(shutil.copytree(source, beside, dirs_exist_ok=True))
        tokenizer.save(str(home / "tokenizer.json"))
        write_gguf(home, path)


def _shard(home: Path) -> None:
    """The one file as two, with an index."""
    store = TensorStore(home)
    names = sorted(store)
    halves = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, some in halves.items():
        save_tensors({name: store[name] for name in some}, home / file)
    table = {name: file for file, some in halves.items() for name in some}
    (home / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": table}))
    (home / SINGLE).unlink()


_DAMAGES: dict[str, Damage] = {".json": damage_json, ".safetensors": damage_safetensors, ".gguf": damage_gguf}
_BESIDE: dict[str, object] = {
    "tokenizer_config.json": {
        "bos_token": "a",
        "eos_token": {"content": "b"},
        "add_bos_token": True,
        "chat_template": [{"name": "default", "template": "{{ messages }}"}],
    },
    "generation_config.json": {"eos_token_id": [1, 2]},
    "companions.json": {"draft_model": "../draft", "head": {"eagle": "../eagle"}},
}
_RECORD: dict[str, object] = {
    "kind": "draft_model",
    "dtype": "float32",
    "target": {"weights": "0a"},
    "chat_template": "",
    "promises": [
        {
            "terms": {"prompts": [[1, 2], [3]], "max_tokens": 4, "depth": 2, "temperature": 1.0},
            "tau": 1.5,
            "standard_error": 0.1,
            "conditional": [0.5, 0.25],
        }
    ],
}
_RECIPE = """modifies_target = false
[paper]
title = "A paper"
year = 2024
link = "https://example.org"
[drafter]
name = "lookahead"
[drafter.options]
window = 5
ngram = 4
pool_from_prompt = true
[verifier]
name = "auto"
[policy]
name = "fixed"
options = {num_speculative_tokens = 4}
"""


def _heads() -> dict[str, LearnMethod[Any, Any]]:
    """The kinds of head that are files of our own format."""
    found = {name: find_learner(name) for name in learner_names()}
    return {name: method for name, method in found.items() if method.model_type is not None}
