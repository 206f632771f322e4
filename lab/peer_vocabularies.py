"""`python -m lab.peer_vocabularies DIR`: the vocabularies of llama.cpp's own tests.

There NAME.gguf is a vocabulary, NAME.gguf.inp has texts with a mark between them, and NAME.gguf.out the ids of each,
one line a text, without start and end token. A line is printed for each file: how many texts get these ids, come back
as they were, and are joined from streamed pieces; or the error by which the file is refused.
"""

import argparse
import sys
import time
from pathlib import Path

from outdraft.codecs.gguf import codec_from_gguf
from outdraft.codecs.text import TextCodec
from outdraft.options.errors import ModelLoadError
from outdraft.weights.gguf import GgufFile

_BETWEEN = "\n__ggml_vocab_test__\n"


def texts_of(path: Path) -> list[tuple[str, list[int]]]:
    """The texts of one vocabulary, and their ids."""
    texts = Path(f"{path}.inp").read_bytes().decode().removesuffix(_BETWEEN).split(_BETWEEN)
    lines = Path(f"{path}.out").read_text(encoding="utf-8").splitlines()
    return [(text, [int(one) for one in line.split()]) for text, line in zip(texts, lines, strict=True)]


def judged(codec: TextCodec, text: str, wanted: list[int]) -> tuple[bool, bool, bool]:
    """Whether it gets these ids, comes back from its own, and is joined from their pieces."""
    ids = codec.encode(text, add_special=False)
    stream, whole = codec.stream(continues=False), codec.decode(ids)
    return ids == wanted, whole == text, "".join(map(stream.push, ids)) + stream.finish() == whole


def main(words: list[str] | None = None) -> int:
    """1 where a text gets other ids."""
    parser = argparse.ArgumentParser(prog="python -m lab.peer_vocabularies", description="llama.cpp's test texts.")
    parser.add_argument("folder", type=Path, help="the folder `models` of a checkout of llama.cpp")
    total, same = 0, 0
    for path in sorted(parser.parse_args(words).folder.glob("ggml-vocab-*.gguf")):
        name, began = path.stem.removeprefix("ggml-vocab-"), time.process_time()
        try:
            codec = codec_from_gguf(GgufFile(path).get, path.name)
        except ModelLoadError as error:
            sys.stdout.write(f"{name}: refused: {error}\n")
            continue
        took = time.process_time() - began
        if codec is None or not Path(f"{path}.inp").is_file():
            sys.stdout.write(f"{name}: read in {took:.1f} processor-seconds; no texts\n")
            continue
        counts = [sum(column) for column in zip(*(judged(codec, *one) for one in texts_of(path)), strict=True)]
        number = len(texts_of(path))
        total, same = total + number, same + counts[0]
        said = ", ".join(f"{count} {what}" for count, what in zip(counts, ("alike", "back", "joined"), strict=True))
        sys.stdout.write(f"{name}: read in {took:.1f} processor-seconds; {number} texts: {said}\n")
    sys.stdout.write(f"{same} of {total} texts get the ids of llama.cpp's files\n")
    return int(same < total or not total)


if __name__ == "__main__":
    sys.exit(main())
