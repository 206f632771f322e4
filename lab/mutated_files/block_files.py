"""Small GGUF files in every block type, from tensor to tensor another, so that a map of ours has parts of several.

`write_blocks` writes one with a vocabulary; `damage_gguf` damages what only such files have, or any of its bytes.
"""

import re
import struct
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random

import gguf
import numpy as np

from lab.mutated_files.mutate import damage_bytes
from lab.strange.stage import CONTEXT, LETTERS
from outdraft.nn.quant.blocks import BLOCKS

VOCABULARIES = ("bpe", "spm")
_WIDTH, _HEADS, _LAYERS = 256, 8, 2
_PLACES = re.compile(rb"(?:blk\.\d\.\w+|output|token_embd)\.weight")  # behind: dimensions, sizes, type, offset


def write_blocks(path: Path, words: str) -> None:
    """With the vocabulary `words`; SentencePiece's model has its embedding as its head, the other a head of its own."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    count = _add_words(writer, words)
    types = islice(cycle(BLOCKS), VOCABULARIES.index(words) * 5, None)  # so that a map has other types in each
    for name, rows in chain(_maps(), [("token_embd", count)], [("output", count)] * (words == "bpe")):
        kind = next(types)
        data = _random_blocks(kind, rows, Random(f"{words} {name}").randrange(1000))
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType[kind])
    for name in ("output_norm", *(f"blk.{i}.{part}_norm" for i in range(_LAYERS) for part in ("attn", "ffn"))):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def damage_gguf(data: bytes, dice: Random) -> tuple[str, bytes]:
    """A tensor's type, its number of rows or where it lies, a scale that is no number; or as any bytes."""
    spots = [found.end() for found in _PLACES.finditer(data)]
    kind = dice.choice(("type", "rows", "place", "scales", "bytes", "bytes", "bytes"))
    if kind == "bytes" or not spots:
        return damage_bytes(data, dice)
    made = bytearray(data)
    if kind == "scales":
        for at in (begin := dice.randrange(len(data) // 4, len(data) - 64), *range(begin, begin + 64, 2)):
            made[at : at + 2] = b"\x00\x7c"
        return f"infinite halves at {begin}", bytes(made)
    at = dice.choice(spots)
    offset, form = {"rows": (12, "<Q"), "type": (20, "<I"), "place": (24, "<Q")}[kind]
    value = {"rows": dice.choice((0, 1, 31, 64, 2**40)), "type": dice.randrange(42)}.get(kind, dice.randrange(2**20))
    struct.pack_into(form, made, at + offset, value)
    return f"{kind} {value} at {at}", bytes(made)


def _maps() -> Iterator[tuple[str, int]]:
    """llama.cpp's name of each map and its outputs."""
    narrow = _WIDTH // _HEADS
    outputs = {"attn_q": _WIDTH, "attn_k": narrow, "attn_v": narrow, "attn_output": _WIDTH}
    outputs |= {"ffn_gate": _WIDTH, "ffn_up": _WIDTH, "ffn_down": _WIDTH}
    for layer in range(_LAYERS):
        yield from ((f"blk.{layer}.{name}", rows) for name, rows in outputs.items())


def _random_blocks(kind: str, rows: int, seed: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """Any bytes, but for small finite scales."""
    block, dice = BLOCKS[kind], np.random.default_rng(seed)
    made = dice.integers(0, 256, (rows * _WIDTH // block.weights, block.size), dtype=np.uint8)
    for at in block.halves:
        made[:, at : at + 2] = np.full((len(made), 1), 0.001, np.float16).view(np.uint8)
    if not block.halves:
        made[:, : {"MXFP4": 1, "NVFP4": 4}[kind]] = {"MXFP4": 122, "NVFP4": 8}[kind]
    return made.reshape(rows, -1)


def _add_words(writer: gguf.GGUFWriter, words: str) -> int:
    """A vocabulary; how many tokens it has."""
    names, kinds = [*LETTERS, LETTERS[0] + LETTERS[1]], [1] * (len(LETTERS) + 1)
    if words == "spm":
        names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *names]
        kinds = [2, 3, 3, *[6] * 256, 1, *kinds]
        writer.add_token_scores([-float(i) for i in range(len(names))])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    else:
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges([f"{LETTERS[0]} {LETTERS[1]}"])
    writer.add_tokenizer_model("llama" if words == "spm" else "gpt2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    return len(names)
