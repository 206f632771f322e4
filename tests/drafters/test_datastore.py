"""The datastore file: what goes in comes out, in order; all or nothing; damage is named; documents are read."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from outdraft.drafters.shared.look_up.datastore import build
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
from outdraft.drafters.shared.look_up.datastore.documents import find_files, read_documents
from outdraft.drafters.shared.look_up.datastore.file import HEADER_BYTES, DatastoreIndex, Header, open_datastore
from outdraft.kernels.text_index.suffix_array import CorpusQuery, sort_suffixes_reference
from outdraft.options.errors import ConfigError

DOCUMENTS = [[1, 2, 3, 4], [], [2, 3, 3]]
ENCODER = IdsOnly(vocab_size=6, fingerprint="ab" * 32)


@pytest.fixture
def path(tmp_path):
    build_datastore(tmp_path / "store", DOCUMENTS, ENCODER)
    return tmp_path / "store"


def test_what_goes_in_comes_out(path):
    store = open_datastore(path)
    assert store.header == Header(vocab_size=6, num_tokens=10, num_documents=3, fingerprint="ab" * 32)
    assert store.corpus.tokens.tolist() == [1, 2, 3, 4, 6, 6, 2, 3, 3, 6] and store.corpus.end == 6
    assert (store.corpus.order == sort_suffixes_reference(store.corpus.tokens)).all()
    assert path.stat().st_size == store.header.num_bytes == HEADER_BYTES + 80
    with pytest.raises(ValueError, match="read-only"):
        store.corpus.tokens[0] = 1


def test_paths_add_up_to_the_counts_again(path):
    found = list(DatastoreIndex(open_datastore(path), CorpusQuery(min_match=1)).lookup([5, 2], 9))
    assert [(one.tokens, one.count) for one in found] == [([3], 0), ([3, 3], 1), ([3, 4], 1)]


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([[1, 6]], r"document 1 has ids outside of 0\.\.5"),
        ([[1], [-1]], r"document 2 has ids outside of 0\.\.5"),
        ([], "hold no token"),
        ([[], []], "hold no token"),
        (["text"], "name the model"),
    ],
)
def test_nothing_is_left_of_a_failure(tmp_path, documents, says):
    with pytest.raises(ConfigError, match=says):
        build_datastore(tmp_path / "store", documents, ENCODER)
    assert not list(tmp_path.iterdir())


class Letters:
    """One id a letter; remembers how many texts were encoded together."""

    vocab_size, fingerprint = 256, ""

    def __init__(self):
        self.batches = []

    def encode_batch(self, texts):
        self.batches.append(len(texts))
        return [list(text.encode()) for text in texts]


def test_texts_are_encoded_together(tmp_path):
    encoder = Letters()
    header = build_datastore(tmp_path / "store", ["some", "short", "texts"] * 100, encoder).header
    assert encoder.batches == [300] and header.num_documents == 300 and header.num_tokens == 14 * 100 + 300


def test_a_corpus_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MAX_TOKENS", 10)
    assert build_datastore(tmp_path / "store", DOCUMENTS, ENCODER).header.num_tokens == 10
    with pytest.raises(ConfigError, match="more than 10 tokens: build several datastores"):
        build_datastore(tmp_path / "store", [*DOCUMENTS, [], [1]], ENCODER)


@pytest.mark.parametrize("is_there", [True, False])
def test_all_of_the_file_is_taken_before_it_is_mapped(tmp_path, monkeypatch, is_there):
    """By the system where it can, else by zeros."""
    if not is_there:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(build, "_PIECE", 7)
    taken, take_room = [], build._take_room

    def watched(file, num_bytes):
        take_room(file, num_bytes)
        file.flush()
        taken.append((os.fstat(file.fileno()).st_size, num_bytes))

    monkeypatch.setattr(build, "_take_room", watched)
    header = build_datastore(tmp_path / "store", DOCUMENTS, ENCODER).header
    assert taken == [(header.num_bytes, header.num_bytes)]
    assert open_datastore(tmp_path / "store").header == header


@pytest.mark.parametrize("when", ["reading", "sorting"])
def test_an_interrupt_keeps_the_old_file(path, when):
    def documents():
        yield from [[1]] * 3
        if when == "reading":
            raise KeyboardInterrupt

    def tell(what, share):
        if when == "sorting" and what == "sorting":
            raise KeyboardInterrupt

    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        build_datastore(path, documents(), ENCODER, tell)
    assert path.read_bytes() == before and [file.name for file in path.parent.iterdir()] == ["store"]


def test_damage_is_named(path, tmp_path):
    whole = path.read_bytes()
    for name, data, says in (
        ("short", whole[:-1], "header wants"),
        ("long", whole + b"x", "header wants"),
        ("other", b"x" * 100, "no datastore"),
        ("empty", b"", "no datastore"),
        ("newer", whole[:8] + b"\2" + whole[9:], "format 2"),
        ("cut", b"\0" * len(whole), "no datastore"),  # a build that never wrote its header
        ("token", whole[:64] + b"\7" + whole[65:], r"holds a token outside of 0\.\.6"),
        ("place", whole[:-4] + b"\xff" * 4, r"holds a place outside of 0\.\.9"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=says):
            open_datastore(tmp_path / name)
    with pytest.raises(ConfigError, match="outdraft datastore build"):
        open_datastore(tmp_path / "none")


def test_a_file_that_changes_while_it_is_open_is_named(path):
    index = DatastoreIndex(open_datastore(path), CorpusQuery(min_match=1))
    with path.open("r+b") as file:
        file.seek(-40, 2)
        file.write(b"\xff" * 40)
    with pytest.raises(ConfigError, match="store was changed while it was open"):
        for token in range(6):
            list(index.lookup([token], 9))


def test_a_file_that_is_cut_while_it_is_open_is_named_and_one_that_is_replaced_stays(path, tmp_path):
    """To read the pages that were cut away would end the process."""
    index = DatastoreIndex(open_datastore(path), CorpusQuery(min_match=1))
    found = [list(index.lookup([token], 9)) for token in range(6)]
    build_datastore(tmp_path / "small", [[1]], ENCODER)
    kept = path.rename(tmp_path / "kept")
    (tmp_path / "small").rename(path)  # another file under the name
    assert [list(index.lookup([token], 9)) for token in range(6)] == found
    os.truncate(kept, 64)
    with pytest.raises(ConfigError, match="was cut short while it was open"):
        index.lookup([1], 9)


def test_the_whole_file_is_on_the_disk_before_it_is_mapped(tmp_path, monkeypatch):
    """Of a sparse one, writing to mapped memory ends the process where the disk is full."""
    seen = []

    def look(tokens, order, alphabet, tell):
        part = next(tmp_path.iterdir())
        seen.append((part.stat().st_blocks * 512, part.stat().st_size))

    monkeypatch.setattr("outdraft.drafters.shared.look_up.datastore.build.sort_suffixes", look)
    build_datastore(tmp_path / "store", [[1] * 100_000], ENCODER)
    assert seen[0][0] >= seen[0][1] > 800_000


FULL_DISK = """
import resource, sys
from outdraft.options.errors import ConfigError
from outdraft.drafters.shared.look_up.datastore.build import IdsOnly, build_datastore
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    build_datastore(sys.argv[1], [[1] * 5000], IdsOnly(vocab_size=6))
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [1000, 30_000], ids=["while texts are written", "while room is made for their order"])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, room):
    words = [sys.executable, "-c", FULL_DISK, str(tmp_path / "store"), str(room)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "store cannot be written: " in done.stdout and "free space" in done.stdout, done.stderr
    assert not list(tmp_path.iterdir())


def test_no_device_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="no regular file"):
        build_datastore(tmp_path / "pipe", DOCUMENTS, ENCODER)
    assert [file.is_fifo() for file in tmp_path.iterdir()] == [True]


def test_who_may_read_it_is_the_umasks_affair(tmp_path):
    before = os.umask(0o027)
    try:
        build_datastore(tmp_path / "store", DOCUMENTS, ENCODER)
    finally:
        os.umask(before)
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o640


def test_vocabularies(path):
    store = open_datastore(path)
    store.check_vocabulary(6, "ab" * 32)
    store.check_vocabulary(9, "")
    with pytest.raises(ConfigError, match="another tokenizer"):
        store.check_vocabulary(6, "cd" * 32)
    with pytest.raises(ConfigError, match="has 5"):
        store.check_vocabulary(5, "ab" * 32)


def test_documents(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one.txt").write_text("first\ntext")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        records = [{"text": "t"}, {"token_ids": [1, 2]}, {"question": "q", "turns": ["r", {"s": "s"}], "n": 1}]
        file.write("\n".join(map(json.dumps, records)) + "\n\n{broken\n")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    files = find_files([tmp_path])
    assert [file.name for file in files] == ["one.txt", "b.jsonl.gz"]
    skipped = []
    read = [document for file in files for document in read_documents(file, skipped.append)]
    assert read == ["first\ntext", "t", [1, 2], "q\nr\ns"]
    assert len(skipped) == 1 and "b.jsonl.gz, line 5" in skipped[0]
    with pytest.raises(ConfigError, match="line 5"):
        list(read_documents(files[1]))
    with pytest.raises(ConfigError, match=r"c\.bin is not a readable"):
        list(read_documents(tmp_path / "c.bin"))
    for missing in ("none", "a/none.txt"):
        with pytest.raises(ConfigError, match="no such file"):
            find_files([tmp_path / missing])
    (tmp_path / "void").mkdir()
    with pytest.raises(ConfigError, match="holds no text"):
        find_files([tmp_path / "void"])


def test_batches_of_any_size_make_the_same_file(path, tmp_path, monkeypatch):
    monkeypatch.setattr("outdraft.drafters.shared.look_up.datastore.build._BATCH_CHARS", 1)
    build_datastore(tmp_path / "other", DOCUMENTS, ENCODER)
    assert (tmp_path / "other").read_bytes() == path.read_bytes()


def test_a_large_sort_in_the_file_itself(tmp_path):
    text = np.random.default_rng(1).integers(0, 50, 20_000).tolist()
    build_datastore(tmp_path / "large", [text], IdsOnly(vocab_size=50))
    corpus = open_datastore(tmp_path / "large").corpus
    assert (corpus.order == sort_suffixes_reference(np.array(corpus.tokens))).all()
