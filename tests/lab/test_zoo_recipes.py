"""Tokenizer, split, copies and batches."""

import gzip
import json
import os
import signal
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from lab.zoo.copies import make_copies
from lab.zoo.recipe import DataConfig, PretrainLoop, TextSource, TrainingRecipe, read_recipe
from lab.zoo.run import data_folder, run_recipe
from lab.zoo.sources import is_held_out, read_documents
from lab.zoo.streams import Stream, halve, open_streams, prepare
from lab.zoo.tokenizer import END_ID, END_OF_TEXT, sample_texts, save_tokenizer, train_tokenizer
from outdraft.codecs.text import TextCodec
from outdraft.models.files.load import load_model
from outdraft.options.errors import ConfigError
from outdraft.training.alone import alone
from outdraft.training.team import Team
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
        kind="tokenizer",
        name="other",
        tokenizer="other",
        data=data,
        loop=PretrainLoop(steps=0),
        task={"vocab_size": 400, "max_len": 64, "family": "byte_fallback"},
    )
    run_recipe(recipe, tmp_path, tmp_path / "out", lambda line: None)
    assert (tmp_path / "out/other/tokenizer.json").exists() and data_folder(recipe, tmp_path / "out").is_dir()
    run_recipe(replace(recipe, tokenizer="tokenizer"), tmp_path, tmp_path / "out", lambda line: None)
    assert len(list((tmp_path / "out/data").glob("*/train-books.npy"))) == 1, "the same tokenizer under another name"
    smaller = replace(recipe, tokenizer="tokenizer", task={**recipe.task, "vocab_size": 300})
    run_recipe(smaller, tmp_path, tmp_path / "out", lambda line: None)
    assert len(list((tmp_path / "out/data").glob("*/train-books.npy"))) == 2, (
        "it is trained again, and spells otherwise"
    )


def test_streams_are_found_again_by_what_is_in_them(data, tokenizer, tmp_path):
    """A shorter source of the same name has streams of its own; other shares read the same ones."""
    save_tokenizer(tokenizer, tmp_path / "out/tokenizer", 64)
    windows = TrainingRecipe(
        kind="mixture", name="mixture", data=data, loop=PretrainLoop(), task={"num_texts": 1, "num_valid": 1}
    )
    (books,) = data.sources
    found = {}
    for name, changed in (
        ("whole", data),
        ("short", replace(data, sources=(replace(books, max_chars=20_000),))),
        ("shares", replace(data, copies_share=0.5, sources=(replace(books, share=0.5),))),
        ("held out", replace(data, holdout_seed=9)),
        ("copies", replace(data, num_copies=10)),
        ("again", data),
    ):
        told = []
        run_recipe(replace(windows, data=changed), tmp_path, tmp_path / "out", told.append)
        found[name] = data_folder(replace(windows, data=changed), tmp_path / "out")
        assert any("there are no streams" in line for line in told) is (name not in ("shares", "again"))
    assert found["whole"] == found["shares"] == found["again"] and len(set(found.values())) == 4
    whole, short = (len(np.load(found[name] / "train-books.npy")) for name in ("whole", "short"))
    assert short < whole
    assert not list((tmp_path / "out/data").rglob("*.part-*"))


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
    loop = PretrainLoop(steps=3, batch_tokens=128, micro_tokens=64, seq_len=32, warmup=1, eval_tokens=128, eval_every=2)
    first = TrainingRecipe(
        kind="tokenizer", name="tokenizer", data=data, loop=PretrainLoop(), task={"vocab_size": 300, "max_len": 64}
    )
    pretrain = TrainingRecipe(kind="pretrain", name="target", data=data, loop=loop, model=shape)
    windows = TrainingRecipe(
        kind="mixture",
        name="mixture",
        data=data,
        loop=PretrainLoop(),
        task={"num_texts": 6, "num_valid": 2, "length": 33},
    )
    told = []
    for recipe in (first, pretrain):
        run_recipe(recipe, tmp_path, out, told.append)
    before = load_model(out / "target")
    assert before.dtype == torch.bfloat16 and any("validation" in line for line in told)
    still = replace(pretrain, run="run_more", task={"init": True}, loop=replace(loop, lr=0.0, muon_lr=0.0))
    run_recipe(still, tmp_path, out, told.append)
    after = load_model(out / "target")
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert (out / "target/run/checkpoint.pt").exists() and (out / "target/run_more/checkpoint.pt").exists()
    run_recipe(windows, tmp_path, out, told.append)
    lines = [json.loads(line) for line in (out / "mixture/train.jsonl").read_text().splitlines()]
    assert len(lines) == 6 and all(len(line["token_ids"]) == 33 for line in lines)
    for part in ("valid", "test"):
        assert len((out / f"mixture/{part}.jsonl").read_text().splitlines()) == 2


@pytest.fixture
def target(data, tokenizer, tmp_path):
    """A recipe of a target, whose streams and tokenizer are there."""
    save_tokenizer(tokenizer, tmp_path / "out/tokenizer", 64)
    shape = dict(vocab_size=300, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_len=64)
    loop = PretrainLoop(steps=3, batch_tokens=128, micro_tokens=64, seq_len=32, warmup=1, eval_tokens=128)
    return TrainingRecipe(kind="pretrain", name="target", data=data, loop=loop, model=shape)


def test_what_rounds_otherwise_is_another_run():
    """A compiled pass is not bit for bit the plain one; how often a run is judged and saved changes no step."""
    of_steps, same = PretrainLoop().of_steps, {"eval_every": 7, "save_every": 7, "eval_tokens": 7, "patience": 7}
    assert PretrainLoop(**same).of_steps == of_steps != PretrainLoop(compile=True).of_steps


def test_a_targets_run_goes_on_as_itself_alone(target, tmp_path):
    """What is there is neither written over nor continued by a run of other settings, and an end is an end."""
    out, told = tmp_path / "out", []
    run_recipe(target, tmp_path, out, told.append)
    with pytest.raises(ConfigError, match=r"target/run holds a training run: continue it with --resume, or move it"):
        run_recipe(target, tmp_path, out, told.append)
    changes = {
        "seed": {"loop": replace(target.loop, seed=2)},
        "lr": {"loop": replace(target.loop, lr=0.5)},
        "task": {"task": {"init": True}},
        "streams": {"data": replace(target.data, num_copies=10)},
        "shares": {"data": replace(target.data, copies_share=0.5)},
    }
    for what, other in changes.items():
        with pytest.raises(ConfigError, match=f"target/run holds a run with {what}="):
            run_recipe(replace(target, **other), tmp_path, out, told.append, resume=True)
    weights = out / "target/model.safetensors"
    weights.unlink()
    run_recipe(target, tmp_path, out, told.append, resume=True)
    assert "ended at step 3; --export writes its weights" in told[-1] and not weights.exists()
    run_recipe(target, tmp_path, out, told.append, export_only=True)
    assert weights.exists()
    with alone(out / "target/run"), pytest.raises(ConfigError, match="another process trains in"):
        run_recipe(target, tmp_path, out, told.append, resume=True)


def test_a_target_that_is_stopped_is_not_written(target, tmp_path, monkeypatch):
    out, told = tmp_path / "out", []

    def tell(line):
        told.append(line)
        if len(told) == before + 1:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does

    quick = replace(target, loop=replace(target.loop, eval_every=1))
    before = 99
    run_recipe(replace(target, name="other"), tmp_path, out, told.append)  # streams are made
    told.clear()
    before = 1  # behind the line of the number format comes an evaluation's
    with pytest.raises(KeyboardInterrupt):
        run_recipe(quick, tmp_path, out, tell)
    assert "stopped at step 1" in told[-1] and "--resume goes on" in told[-1]
    assert not (out / "target/model.safetensors").exists() and (out / "target/run/checkpoint.pt").exists()
    run_recipe(quick, tmp_path, out, told.append, resume=True)
    assert (out / "target/model.safetensors").exists()


def test_of_several_workers_the_first_writes(target, tmp_path, monkeypatch):
    class Second(Team):
        def wait(self):
            pass

    monkeypatch.setattr("lab.zoo.run.join_team", lambda device: nullcontext(Second(rank=1, size=2)))
    windows = replace(target, kind="mixture", name="mixture", model={}, task={"num_texts": 1, "num_valid": 1})
    run_recipe(windows, tmp_path, tmp_path / "out", lambda line: None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tokenizer"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"hiden_size": 16}}, r"unknown key 'hiden_size' in \[model\], did you mean 'hidden_size'"),
        ({"model": {"vocab_size": 300}}, r"\[model\] lacks hidden_size, num_layers, num_heads, intermediate_size: add"),
        ({"model": {"bos_id": 0}}, r"unknown key 'bos_id'"),
        ({"kind": "tokenizer", "task": {"vocab_size": 300, "max_len": 64, "famly": "x"}}, "did you mean 'family'"),
        ({"kind": "tokenizer", "task": {"vocab_size": 300}}, r"\[task\] lacks max_len: add"),
    ],
)
def test_what_a_table_lacks_or_does_not_take_is_named(target, tmp_path, changes, says):
    with pytest.raises(ConfigError, match=says):
        run_recipe(replace(target, **changes), tmp_path, tmp_path / "out", lambda line: None)


def test_halves_of_streams_share_no_token():
    plain = Stream(name="books", ids=np.arange(1, 100, dtype=np.uint16), weight=0.75, starts=None)
    copies = Stream(name="copies", ids=np.arange(200, 300, dtype=np.uint16), weight=0.25, starts=np.array([0, 30, 60]))
    for stream, cut in ((plain, 49), (copies, 60)):
        (first,), (second,) = halve([stream])
        assert first.ids.tolist() + second.ids.tolist() == stream.ids.tolist() and len(first.ids) == cut
        assert first.weight == second.weight == stream.weight
    assert first.starts.tolist() == [0, 30] and second.starts.tolist() == [0]


def test_tune_and_test_are_of_different_text(target, tmp_path):
    task = {"num_texts": 1, "num_valid": 40, "length": 33}
    windows = replace(target, kind="mixture", name="mixture", model={}, task=task)
    run_recipe(windows, tmp_path, tmp_path / "out", lambda line: None)
    streams = {one.name: one for one in open_streams(target.data, data_folder(windows, tmp_path / "out"), "valid")}
    parts = halve(list(streams.values()))
    for name, part in zip(("valid", "test"), parts, strict=True):
        text = ["".join(f",{i}" for i in stream.ids) for stream in part]
        for line in (tmp_path / f"out/mixture/{name}.jsonl").read_text().splitlines():
            window = "".join(f",{i}" for i in json.loads(line)["token_ids"])
            assert any(window in one for one in text), "a window is of its own half"


def test_a_recipe_names_the_near_miss(tmp_path):
    (tmp_path / "data.toml").write_text("holdout_percent = 3\n")
    (tmp_path / "r.toml").write_text(
        'kind = "pretrain"\nname = "x"\ndata = "data.toml"\n[loop]\nsteps = 1\nseqlen = 4\n'
    )
    with pytest.raises(ConfigError, match="seq_len"):
        read_recipe(tmp_path / "r.toml")
