"""Train the zoo's tokenizer: byte-level BPE, every byte reachable, one special token.

Data in: the training split of a recipe's sources (a few million characters of each, by its share). Data out: a
`tokenizer.json` and `tokenizer_config.json` as Hugging Face writes them. Id 0 is <|endoftext|>, both end and start.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from outdraft.training.config import DataConfig
from outdraft.training.sources import is_held_out, read_documents

END_OF_TEXT = "<|endoftext|>"
END_ID = 0


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of `vocab_size` entries learned from `texts`."""
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
