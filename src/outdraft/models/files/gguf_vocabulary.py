"""A tokenizer.json as the vocabulary of a GGUF file: the inverse of `codecs/gguf.py`.

byte-level BPE             tokens, their kinds, merges, and the name of the way of cutting words
marked blanks and bytes    tokens, their kinds, and scores that put the same merges in the same order (SentencePiece)
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from outdraft.codecs.gguf import BYTE, CONTROL, NORMAL, ROLES, UNKNOWN, USER_DEFINED
from outdraft.codecs.gguf_cuts import pre_of
from outdraft.codecs.gguf_spm import marked, merges_of
from outdraft.codecs.text import TextCodec
from outdraft.codecs.token_settings import read_settings, special_tokens
from outdraft.codecs.tokenizer_file import described_part, read_tokenizer
from outdraft.options.errors import ModelLoadError

_BLANKS = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def add_vocabulary(writer: Any, directory: Path, raw: Mapping[str, object], size: int) -> None:
    """Names, kinds, merges or scores, roles and chat templates; llama.cpp refuses to run without a vocabulary.

    Raises `ModelLoadError` for a tokenizer that is of neither kind.
    """
    tokenizer, codec = read_tokenizer(directory / "tokenizer.json"), TextCodec.load(directory)
    model = json.loads(tokenizer.to_str())["model"]
    names = [tokenizer.id_to_token(i) for i in range(size)]
    kinds = [NORMAL if name is not None else CONTROL for name in names]
    for i, one in tokenizer.get_added_tokens_decoder().items():
        kinds[i] = CONTROL if one.special else USER_DEFINED
    if model.get("type") == "BPE" and model["merges"] and (pre := pre_of(tokenizer)) is not None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    elif (leading := _leading(tokenizer, model)) is not None:
        kinds = [BYTE if name in _BYTES else kind for name, kind in zip(names, kinds, strict=True)]
        kinds[model["vocab"][model["unk_token"]]] = UNKNOWN
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores(_scores(directory, model, kinds))
        writer.add_add_space_prefix(leading)
    else:
        raise ModelLoadError(
            f"{directory}/tokenizer.json is no byte-level BPE with merges and a way of cutting words that is written "
            "as GGUF here, and no SentencePiece's: use llama.cpp's convert_hf_to_gguf.py"
        )
    writer.add_token_list([name or f"[unused{i}]" for i, name in enumerate(names)])
    writer.add_token_types(kinds)
    writer.add_add_bos_token(codec.encode("") != [])
    settings = read_settings(directory)
    named = special_tokens(settings).items()
    roles: dict[str, Any] = {role: tokenizer.token_to_id(name) for role, name in named if role in ROLES}
    for role in ("bos_token", "eos_token"):
        token = raw.get(f"{role}_id")
        roles[role] = token[0] if isinstance(token, list) else roles.get(role) if token is None else token
    for role, id in roles.items():
        if isinstance(id, int):
            writer.add_uint32(ROLES[role], id)
    if template := settings.get("chat_template"):
        writer.add_chat_template(template)


_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def _leading(tokenizer: Tokenizer, model: Mapping[str, Any]) -> bool | None:
    """Whether a SentencePiece tokenizer reads a text with a blank before it; None: it is none."""
    if not (model.get("byte_fallback") and model.get("unk_token") and model.get("merges")):
        return None
    if described_part(tokenizer.pre_tokenizer) not in (None, _BLANKS):  # which finds none: they are marked by then
        return None
    for leading in (False, True):
        other = marked({}, [], unknown=None, leading=leading)
        pairs = ((tokenizer.normalizer, other.normalizer), (tokenizer.decoder, other.decoder))
        if all(described_part(one) == described_part(two) for one, two in pairs):
            return leading
    return None


def _scores(directory: Path, model: Mapping[str, Any], kinds: list[int]) -> list[float]:
    """The earlier a token is merged, the higher its score. Raises `ModelLoadError` where that gives other merges."""
    pairs = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    rank: dict[str, int] = {}
    for pair in pairs:
        rank.setdefault("".join(pair), len(rank))
    vocab = {name: i for name, i in model["vocab"].items() if kinds[i] != BYTE}
    scores = [-float(len(rank))] * len(kinds)
    for name, i in vocab.items():
        scores[i] = -float(rank.get(name, len(rank)))
    read = [
        pair for pair in merges_of(vocab, scores) if (name := "".join(pair)) in rank or kinds[vocab[name]] == NORMAL
    ]
    if set(read) != set(pairs) or [*map("".join, read)] != [*map("".join, pairs)]:
        raise ModelLoadError(
            f"{directory}/tokenizer.json merges tokens in an order that no scores give: use llama.cpp's "
            "convert_hf_to_gguf.py"
        )
    return scores
