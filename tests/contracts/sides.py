"""Tiny draft models and datastores that several rows share: functions of the tiny target and an empty directory."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from torch import nn

from outdraft.codecs.text import TextCodec
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.nn.context import CausalContext
from outdraft.testing.contract.distribution import PROMPT
from outdraft.testing.contract.ground import LENGTH, PROMPTS
from outdraft.testing.tiny import tiny_model

Side = Callable[[Decoder, Path], Mapping[str, Any]]


def smaller_model(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random model of the target's vocabulary, which agrees with it now and then."""
    config = target.config
    save_model(tiny_model(vocab=config.vocab_size, layers=1, max_len=config.max_len, seed=5), directory)
    return {"model": str(directory)}


def twin(target: Decoder, directory: Path, *, noise: float = 0.05) -> Mapping[str, Any]:
    """The target with a little noise on every weight: mostly right, so that long runs are accepted and cut.

    `noise`: in standard deviations of the weights.
    """
    copy = Decoder(target.config, target.embedding.dtype)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for ours, theirs in zip(copy.parameters(), target.parameters(), strict=True):
            drawn = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
            ours.copy_(theirs + drawn * noise * theirs.std())
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


def all_its_texts(target: Decoder) -> tuple[tuple[int, ...], ...]:
    """A document that holds what the target writes after each prompt of the checks."""
    prompts = [[token % target.config.vocab_size for token in prompt] for prompt in (*PROMPTS, PROMPT)]
    return (tuple(token for prompt in prompts for token in greedy_text(target, prompt, LENGTH)),)


def quiet_middle(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """A target of three layers; the attention of the middle one adds next to nothing."""
    made = tiny_model(layers=3, vocab=vocab_size, dtype=dtype, seed=1, exact=False)
    made.layers[1].out.weight.mul_(0.001)
    made.set_exact(True)
    return made


def quiet_end(vocab_size: int, dtype: torch.dtype, *, share: float = 0.03) -> Decoder:
    """A target of two layers, the second of which adds next to nothing: this share of what it would."""
    made = tiny_model(vocab=vocab_size, dtype=dtype, seed=1, exact=False)
    for part in (made.layers[1].out, made.layers[1].down):
        part.weight.mul_(share)
    made.set_exact(True)
    return made


def stutterer(vocab_size: int, dtype: torch.dtype) -> Decoder:
    """A target that likes to say a token again: its texts are runs of one token or another."""
    made = tiny_model(vocab=vocab_size, dtype=dtype, seed=1, exact=False)
    made.lm_head.weight += 0.3 * made.embedding
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


def letter_codec(size: int) -> TextCodec:
    """One letter a token, so that every text can be spelled in one way only."""
    return TextCodec(_letters(range(size), merges=0))


def rewritten_twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The target's twin in another vocabulary: the letters in the opposite order, and some pairs of letters.

    A pair is read as its second letter would be, and hardly ever written.
    """
    size = target.config.vocab_size
    pairs = min(4, size // 2)
    _letters(reversed(range(size)), merges=pairs).save(str(directory / "tokenizer.json"))
    twin(target, directory)
    same = load_model(directory / "twin")
    made = Decoder(replace(same.config, vocab_size=size + pairs), same.embedding.dtype)
    weights = same.state_dict()
    ends = torch.arange(size - 2, size - 2 - 2 * pairs, -2)  # the second letters of the pairs, as the target counts
    weights["embedding"] = torch.cat((same.embedding.flip(0), same.embedding[ends]))
    head = weights["lm_head.weight"]
    weights["lm_head.weight"] = torch.cat((head.flip(0), torch.zeros(pairs, head.shape[1], dtype=head.dtype)))
    made.load_state_dict(weights)
    save_model(made, directory)
    return {"model": str(directory)}


def _letters(order: Iterable[int], *, merges: int) -> Tokenizer:
    """Letters in this order, then pairs of neighbours."""
    names = [chr(ord("!") + i) for i in order]
    pairs = list(zip(names[::2], names[1::2], strict=False))[:merges]
    vocab = {name: i for i, name in enumerate([*names, *(a + b for a, b in pairs)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def randomise(module: nn.Module, seed: int) -> None:
    """Weights wide enough that guesses wander."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)


def random_heads(kind: str, **options: Any) -> Side:
    """Heads of a trained kind, with random weights. `options`: of the kind's learner."""

    def side(target: Decoder, directory: Path) -> Mapping[str, Any]:
        learner = find_learner(kind).new(find_learner(kind).options(**options), target, 0)
        randomise(learner.module, seed=9)
        learner.save(directory)
        return {"model": str(directory)}

    return side


def untrained_heads(kind: str, **options: Any) -> Side:
    """Heads that say what the target said last: right where it says a token again."""

    def side(target: Decoder, directory: Path) -> Mapping[str, Any]:
        find_learner(kind).new(find_learner(kind).options(**options), target, 0).save(directory)
        return {"model": str(directory)}

    return side


def inside(side: Side, **options: Any) -> Side:
    """The draft model of another side, as the inner drafter of a drafter made of drafters."""
    return lambda target, directory: {"drafter": {"method": "draft_model", **side(target, directory), **options}}
