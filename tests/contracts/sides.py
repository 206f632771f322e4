"""Tiny draft models and datastores that several rows share: functions of the tiny target and an empty directory."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from torch import nn

from outdraft.codecs.text import TextCodec
from outdraft.drafters.shared.datastore.build import IdsOnly, build_datastore
from outdraft.models.base import Decoder
from outdraft.models.load import save_model
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import tiny_model

Side = Callable[[Decoder, Path], Mapping[str, Any]]


def smaller_model(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random model of the target's vocabulary, which agrees with it now and then."""
    config = target.config
    save_model(tiny_model(vocab=config.vocab_size, layers=1, max_len=config.max_len, seed=5), directory)
    return {"model": str(directory)}


def twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The target with a little noise on every weight: mostly right, so that long runs are accepted and cut."""
    copy = Decoder(target.config, target.embedding.dtype)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for ours, theirs in zip(copy.parameters(), target.parameters(), strict=True):
            noise = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
            ours.copy_(theirs + noise * 0.05 * theirs.std())
    save_model(copy, directory / "twin")
    return {"model": str(directory / "twin")}


def greedy_text(target: Decoder, prompt: list[int], count: int) -> list[int]:
    """The prompt, and the tokens that the target writes behind it."""
    text = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            logits = target(torch.tensor(text), torch.arange(len(text)), CausalContext(1, len(text)))
        text.append(int(logits[-1].argmax()))
    return text


def its_own_text(target: Decoder) -> tuple[tuple[int, ...], ...]:
    """A document that holds what the target writes after a prompt that repeats itself."""
    prompt = [token % target.config.vocab_size for token in (5, 6, 7, 8) * 4]
    return (tuple(greedy_text(target, prompt, 40)),)


def quiet_middle(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """A target of three layers; the attention of the middle one adds next to nothing."""
    made = tiny_model(layers=3, vocab=vocab_size, dtype=dtype, seed=1, exact=False)
    made.layers[1].out.weight.mul_(0.001)
    made.set_exact(True)
    return made


def datastore(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Some of the target's own greedy text, and as much noise that every pair of tokens is found."""
    vocab, generator = target.config.vocab_size, torch.Generator().manual_seed(7)
    documents = [torch.randint(vocab, (2 * vocab * vocab,), generator=generator).tolist()]
    for first in range(min(vocab, 10)):
        documents += [greedy_text(target, [first, *range(5), first], 20)] * 3
    build_datastore(directory / "store", documents, IdsOnly(vocab_size=vocab))
    return {"datastore": str(directory / "store")}


def toy_tokenizer(size: int, seed: int) -> Tokenizer:
    """Byte-level BPE of `size` tokens over the first few letters; other seeds merge other pairs."""
    letters = "abcdefghijkl"[: max(4, min(12, size // 2))]
    names, merges = list(letters), list[tuple[str, str]]()
    generator = torch.Generator().manual_seed(seed)
    while len(names) < size:
        left, right = (names[int(i)] for i in torch.randint(len(names), (2,), generator=generator))
        if left + right not in names and len(left + right) < 6:
            names.append(left + right)
            merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def toy_codec(size: int) -> TextCodec:
    """The target's."""
    return TextCodec(toy_tokenizer(size, seed=1))


def stranger(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random model of another vocabulary: as many letters, other merges, fewer tokens."""
    size, full = max(6, target.config.vocab_size * 4 // 5), target.config.max_len
    toy_tokenizer(size, seed=2).save(str(directory / "tokenizer.json"))
    save_model(tiny_model(vocab=size, layers=1, max_len=full, seed=5), directory)
    return {"model": str(directory)}


def randomise(module: nn.Module, seed: int) -> None:
    """Weights wide enough that guesses wander."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)


def inside(side: Side, **options: Any) -> Side:
    """The draft model of another side, as the inner drafter of a drafter made of drafters."""
    return lambda target, directory: {"drafter": {"method": "draft_model", **side(target, directory), **options}}
