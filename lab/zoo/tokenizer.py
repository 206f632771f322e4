"""Train a tokenizer for the zoo: byte-pair encoding, every byte reachable, one special token.

    byte_level       GPT-2's family: a piece is bytes, merged inside its words       the zoo's target and its drafters
    byte_fallback    Llama 2's family: a piece is text with U+2581 for a space,      the zoo's foreign draft
                     characters that are too rare for a piece are spelled as raw bytes

Data in: the training split of a recipe's sources (a few million characters of each, by its share). Data out: a
`tokenizer.json` and `tokenizer_config.json` as Hugging Face writes them. Id 0 is <|endoftext|>, both end and start.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lab.zoo.recipe import DataConfig
from lab.zoo.sources import is_held_out, read_documents
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

END_OF_TEXT = "<|endoftext|>"
END_ID = 0
FAMILIES = ("byte_level", "byte_fallback")
_SPACE = "\u2581"
_RAW_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_WORDS = (
    rf"{_SPACE}+(?={_SPACE})|{_SPACE}?\p{{L}}+|{_SPACE}?\p{{N}}+|{_SPACE}?[^{_SPACE}\s\p{{L}}\p{{N}}]+|{_SPACE}|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerOptions:
    """The [task] table of a tokenizer's recipe."""

    vocab_size: int
    max_len: int  # of the model that reads it
    family: str = "byte_level"


def train_tokenizer(texts: Iterator[str], vocab_size: int, family: str = "byte_level") -> Tokenizer:
    """A tokenizer of `vocab_size` entries learned from `texts`. Raises `ConfigError` for a family that is not known."""
    if family == "byte_level":
        return _byte_level(texts, vocab_size)
    if family == "byte_fallback":
        return _byte_fallback(texts, vocab_size)
    raise ConfigError(f"tokenizer family {family!r} is not known{near_miss(family, FAMILIES)}: {', '.join(FAMILIES)}")


def _byte_level(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _byte_fallback(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """The 256 raw bytes are reserved while merges are learned, then they are plain entries of the vocabulary."""
    learner = _marked(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_TEXT, *_RAW_BYTES], limit_alphabet=256, show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    learned = json.loads(learner.to_str())["model"]
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in learned["merges"]]
    tokenizer = _marked(models.BPE(learned["vocab"], merges, byte_fallback=True, fuse_unk=False))
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def _marked(model: models.BPE) -> Tokenizer:
    """Spaces as U+2581, cut at words, numbers, signs and runs of spaces."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def sample_texts(data: DataConfig, data_dir: Path, total_chars: int) -> Iterator[str]:
    """Training documents, evenly picked, up to `total_chars` shared out as in the recipe."""
    whole = sum(source.share for source in data.sources)
    for source in data.sources:
        budget = int(total_chars * source.share / whole)
        documents = [d for d in read_documents(source, data_dir) if not is_held_out(d, data)]
        each = max(1000, budget // max(1, len(documents)))
        yield from (document[:each] for document in documents)


def save_tokenizer(tokenizer: Tokenizer, directory: Path, max_len: int) -> None:
    """Write the two files that describe the tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_len,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
