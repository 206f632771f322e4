"""What the calls of a sweep need, in one directory: tiny models with a tokenizer, a datastore, a text; and engines."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer, decoders, models

from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.engine.llm import LLM
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model

VOCAB = 61
CONTEXT = 64
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[:VOCAB]


@dataclass
class Stage:
    """Made in an empty directory; engines are loaded when they are first asked for."""

    directory: Path

    def __post_init__(self) -> None:
        self.target = self.directory / "target"
        self.draft = self.directory / "draft"
        self.store = self.directory / "store"
        self.text = self.directory / "text.txt"
        if not self.target.exists():
            tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(LETTERS)}, merges=[]))
            tokenizer.decoder = decoders.ByteLevel()
            for place, layers, seed in ((self.target, 3, 1), (self.draft, 1, 5)):
                save_model(tiny_model(vocab=VOCAB, layers=layers, max_len=CONTEXT, seed=seed, exact=False), place)
                tokenizer.save(str(place / "tokenizer.json"))
            build_datastore(
                self.store, [[i % VOCAB for i in range(n, 200)] for n in range(9)], IdsOnly(vocab_size=VOCAB)
            )
            self.text.write_text("abcdefgh" * 99)

    @cached_property
    def llm(self) -> LLM:
        return LLM(self.target, drafter="none", dtype="float32")

    @cached_property
    def zoo(self) -> LLM:
        """Over the zoo's target, for drafters with weights of their own there."""
        return LLM("zoo:target", drafter="none")
