"""Tokenizer, split, copies and batches."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from outdraft.codecs.text import TextCodec
from outdraft.core.errors import ConfigError
from outdraft.models.load import load_model
from outdraft.training.config import DataConfig, LoopConfig, TextSource, TrainingRecipe, read_recipe
from outdraft.training.copies import make_copies
from outdraft.training.data import open_streams, prepare
from outdraft.training.run import run_recipe
from outdraft.training.sources import is_held_out, read_documents
from outdraft.training.tokenizer import END_ID, END_OF_TEXT, sample_texts, save_tokenizer, train_tokenizer
from tests.training.toys import toy_sampler


@pytest.fixture
def data(tmp_path):
    texts = [f"Book {i}. " + f"The cat number {i} sat on mat {i * 7}. " * 20 for i in range(60)]
    with gzip.open(tmp_path / "books.jsonl.gz", "wt") as out:
        out.writelines(json.dumps({"text": text, "good": i % 2 == 0}) + "\n" for i, text in enumerate(texts))
        out.write('{"text": "damaged\n')
    source = TextSource(
        name="books", path="books.jsonl.gz", share=1.0, repository="here", commit="none", licence="none"
    )
    return DataConfig(sources=(source,), num_copies=20, holdout_percent=20)


@pytest.fixture
def tokenizer(data, tmp_path):
    return train_tokenizer(sample_texts(data, tmp_path, 100_000), 300)


def test_the_tokenizer_round_trips_every_byte(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path / "tok", 64)
    loaded = Tokenizer.from_file(str(tmp_path / "tok" / "tokenizer.json"))
    text = "".join(map(chr, range(1, 256))) + " tab\t\n\r\n  é 漢字 🙂 \U0010ffff"
    assert loaded.decode(loaded.encode(text).ids) == text
    alphabet = {piece for piece in loaded.get_vocab() if len(piece) == 1}
    assert len(alphabet) == 256  # one entry a byte
    assert loaded.token_to_id(END_OF_TEXT) == END_ID


def test_a_tokenizer_of_the_other_family_spells_text_and_falls_back_to_bytes(data, tmp_path):
    """It is read by our codec, whose bytes of each token join to the text; what it learned has no raw bytes."""
    made = train_tokenizer(sample_texts(data, tmp_path, 100_000), 400, "byte_fallback")
    save_tokenizer(made, tmp_path / "other", 64)
    codec = TextCodec.load(tmp_path / "other")
    text = "The cat number 7 sat\n    on mat 49.\t é 漢字 🙂"
    ids = codec.encode(text)
    assert b"".join(map(codec.token_bytes, ids)).decode() == text == codec.decode(ids)
    assert codec.token_bytes(codec.encode("The cat")[-1]) == b" cat", "a space belongs to the word behind it"
    assert codec.encode("The cat number") and max(map(len, map(codec.token_bytes, ids))) > 3
    assert codec.eos_token_ids == {END_ID} and made.get_vocab_size() <= 400
    assert len(codec.encode("漢")) == 3, "one raw byte after the other"
    with pytest.raises(ConfigError, match="did you mean 'byte_fallback'"):
        train_tokenizer(iter(["x"]), 300, "byte_falback")


def test_another_tokenizers_streams_stand_beside_the_targets(data, tmp_path):
    recipe = TrainingRecipe(
        kind="tokenizer", name="other", tokenizer="other", data=data, loop=LoopConfig(steps=0),
        task={"vocab_size": 400, "max_len": 64, "family": "byte_fallback"},
    )  # fmt: skip
    run_recipe(recipe, tmp_path, tmp_path / "out", lambda line: None)
    assert (tmp_path / "out/other/tokenizer.json").exists() and (tmp_path / "out/data/other/train-books.npy").exists()
    assert not list((tmp_path / "out/data").glob("*.npy"))


def test_no_held_out_document_is_trained_on(data, tokenizer, tmp_path):
    prepare(data, tmp_path, tokenizer, tmp_path / "out", lambda line: None)
    documents = list(read_documents(data.sources[0], tmp_path))
    held = [d for d in documents if is_held_out(d, data)]
    assert len(documents) == 60 and 3 < len(held) < 30
    seen = " ".join(tokenizer.decode(np.load(p).tolist()) for p in (tmp_path / "out").glob("train-*.npy"))
    for document in documents:
        assert (document[:60] in seen) != (document in held)


def test_the_split_depends_on_the_text_alone(data):
    other = DataConfig(sources=(), holdout_percent=20)
    assert [is_held_out(str(i), data) for i in range(50)] == [is_held_out(str(i), other) for i in range(50)]


def test_only_keeps_flagged_records_and_max_chars_stops(data, tmp_path):
    source = data.sources[0]
    flagged = TextSource(**{n: getattr(source, n) for n in TextSource.__slots__} | {"only": "good"})
    assert len(list(read_documents(flagged, tmp_path))) == 30
    short = TextSource(**{n: getattr(source, n) for n in TextSource.__slots__} | {"max_chars": 1500})
    assert 1 <= len(list(read_documents(short, tmp_path))) < 6


def test_batches_are_a_function_of_seed_step_and_row():
    sampler = toy_sampler()
    whole = sampler.rows(3, 0, 6, 9)
    assert (toy_sampler().rows(3, 2, 4, 9) == whole[2:]).all()
    assert not (sampler.rows(4, 0, 6, 9) == whole).all()
    assert not (toy_sampler(1).rows(3, 0, 6, 9) == whole).all()


def test_copies_repeat_their_passage():
    prose = ["It was a dark night, and the rain fell in torrents over the quiet town. " * 20]
    function = "def area_of(width, height):\n    assert width and height\n    result = width * height\n"
    code = [(function + "    return result + width - width + height\n") * 3]
    texts = list(make_copies(prose, code, 30, seed=0))
    assert texts == list(make_copies(prose, code, 30, seed=0))
    repeated = [t for t in texts if "dark night" in t]
    assert repeated
    for text in repeated:
        passage = text.split("\n\n")[0]
        assert text.count(passage) >= 2
    assert any(t.count("def ") == 2 and "\n\n\n" in t for t in texts)


def test_streams_carry_the_recipes_shares(data, tokenizer, tmp_path):
    prepare(data, tmp_path, tokenizer, tmp_path / "out", lambda line: None)
    weights = {s.name: s.weight for s in open_streams(data, tmp_path / "out", "train")}
    assert weights == {"books": pytest.approx(0.9), "copies": pytest.approx(0.1)}


def test_a_target_is_trained_goes_on_and_leaves_windows_of_text(data, tokenizer, tmp_path):
    """The zoo's chain of recipes, small: tokenizer, target, the target again, a mixture for drafts."""
    out, shape = (
        tmp_path / "out",
        dict(vocab_size=300, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_len=64),
    )
    loop = LoopConfig(steps=3, batch_tokens=128, micro_tokens=64, seq_len=32, warmup=1, eval_tokens=128, eval_every=2)
    first = TrainingRecipe(
        kind="tokenizer", name="tokenizer", data=data, loop=LoopConfig(), task={"vocab_size": 300, "max_len": 64}
    )
    pretrain = TrainingRecipe(kind="pretrain", name="target", data=data, loop=loop, model=shape)
    windows = TrainingRecipe(
        kind="mixture",
        name="mixture",
        data=data,
        loop=LoopConfig(),
        task={"num_texts": 6, "num_valid": 2, "length": 33},
    )
    told = []
    for recipe in (first, pretrain):
        run_recipe(recipe, tmp_path, out, told.append)
    before = load_model(out / "target")
    assert before.dtype == torch.bfloat16 and any("validation" in line for line in told)
    (out / "target/run/checkpoint.pt").unlink()
    run_recipe(
        replace(pretrain, task={"init": True}, loop=replace(loop, lr=0.0, muon_lr=0.0)), tmp_path, out, told.append
    )
    after = load_model(out / "target")
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    run_recipe(windows, tmp_path, out, told.append)
    lines = [json.loads(line) for line in (out / "mixture/train.jsonl").read_text().splitlines()]
    assert len(lines) == 6 and all(len(line["token_ids"]) == 33 for line in lines)
    assert len((out / "mixture/valid.jsonl").read_text().splitlines()) == 2


def test_a_recipe_names_the_near_miss(tmp_path):
    (tmp_path / "data.toml").write_text("holdout_percent = 3\n")
    (tmp_path / "r.toml").write_text(
        'kind = "pretrain"\nname = "x"\ndata = "data.toml"\n[loop]\nsteps = 1\nseqlen = 4\n'
    )
    with pytest.raises(ConfigError, match="seq_len"):
        read_recipe(tmp_path / "r.toml")
