"""Records of every shape, the accounts of a corpus, and rows that hold every token once an epoch."""

import gzip
import json

import numpy as np
import pytest
import torch

from outdraft import zoo
from outdraft.codecs.chat import ChatTemplate
from outdraft.codecs.text import TextCodec
from outdraft.options.errors import ConfigError
from outdraft.training.corpus import open_corpus
from outdraft.training.examples import encode, find_files, pieces_of, read_records
from outdraft.training.packing import Packing, example_rows

TEMPLATE = ChatTemplate(
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    {},
)
CHAT = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "more"},
    {"role": "assistant", "content": "bye"},
]


@pytest.fixture(scope="module")
def codec():
    return TextCodec.load(zoo.path("target"))


def cut(record, template=None):
    return [(piece.content, piece.counts) for piece in pieces_of(record, template, "here")]


def test_what_counts_of_each_kind_of_record():
    assert cut({"text": "abc"}) == [("abc", True)]
    assert (
        cut({"prompt": "a", "response": "b"}) == cut({"prompt": "a", "completion": "b"}) == [("a", False), ("b", True)]
    )
    assert cut({"prompt_token_ids": [1], "token_ids": [2, 3]}) == [([1], False), ([2, 3], True)]
    shared = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}
    assert cut(shared, TEMPLATE) == cut({"messages": CHAT[:2]}, TEMPLATE)


def test_the_assistants_words_count_by_template_and_without_one():
    assert cut({"messages": CHAT}, TEMPLATE) == [
        ("<user>hi</><assistant>", False),
        ("hello</>", True),
        ("<user>more</><assistant>", False),
        ("bye</>", True),
    ]
    plain = cut({"messages": CHAT})
    assert [words for words, counts in plain if counts] == [" hello\n", " bye\n"]
    assert "".join(words for words, _ in plain) == "User: hi\nAssistant: hello\nUser: more\nAssistant: bye\n"


def test_what_the_assistant_says_before_anybody_asked_does_not_count():
    greeting = {"role": "assistant", "content": "welcome"}
    said = [("<assistant>welcome</><user>hi</><assistant>", False), ("hello</>", True)]
    assert cut({"messages": [greeting, *CHAT[:2]]}, TEMPLATE) == said
    system = {"role": "system", "content": "be kind"}
    assert cut({"messages": [system, greeting, *CHAT[:2]]}, TEMPLATE)[1:] == said[1:]
    assert [words for words, counts in cut({"messages": [greeting, *CHAT[:2]]}) if counts] == [" hello\n"]


def test_a_field_that_is_null_is_not_there():
    """Parquet gives every row every column."""
    said = {"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}
    nothing = {"role": None, "content": None}
    wanted = cut({"messages": CHAT[:2]}, TEMPLATE)
    assert cut({"messages": None, "conversations": list(said)}, TEMPLATE) == wanted
    assert cut({"messages": [nothing | one for one in said]}, TEMPLATE) == wanted
    assert cut({"prompt": "a", "response": None, "completion": "b"}) == [("a", False), ("b", True)]
    assert cut({"token_ids": None, "prompt_token_ids": None, "text": "a", "messages": None}) == [("a", True)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"body": "x"}, "has the fields body: it needs text"),
        ({"messages": CHAT[:1]}, "no answer of the assistant"),
        ({"messages": CHAT[1:2]}, "no answer of the assistant"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "a message has a role"),
        ({"messages": ["hi"]}, "is no message"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "a message has a role"),
        ({"prompt_token_ids": 7, "token_ids": [1]}, "not a list of ids"),
    ],
)
def test_what_is_no_example_is_named(record, message):
    with pytest.raises(ConfigError, match=f"here.*{message}"):
        pieces_of(record, TEMPLATE, "here")


def test_a_template_that_rewrites_the_past_is_refused():
    forgetful = ChatTemplate("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}", {})
    with pytest.raises(ConfigError, match="rewrites earlier messages"):
        pieces_of({"messages": CHAT}, forgetful, "here")


def test_ids_need_no_tokenizer_and_text_does(codec):
    assert encode(pieces_of({"token_ids": [5, 6]}, None, "x"), None, "x") == ([5, 6], [True, True])
    with pytest.raises(ConfigError, match="no tokenizer"):
        encode(pieces_of({"text": "a"}, None, "x"), None, "x")
    ids, counts = encode(pieces_of({"prompt": "ab ", "response": "cd"}, None, "x"), codec, "x")
    assert codec.decode(ids) == "ab cd" and counts == sorted(counts) and 0 < sum(counts) < len(counts)


@pytest.mark.parametrize("ids", [["a"], [[1]], [1.7], [True]])
def test_ids_are_whole_numbers(ids):
    with pytest.raises(ConfigError, match="x: token ids are whole numbers"):
        encode(pieces_of({"token_ids": ids}, None, "x"), None, "x")


def test_a_template_that_writes_the_start_token_gets_no_second_one(codec):
    codec._add_bos, before = True, codec._add_bos
    try:
        chat = encode(pieces_of({"messages": CHAT}, TEMPLATE, "x"), codec, "x")[0]
        plain = encode(pieces_of({"messages": CHAT}, None, "x"), codec, "x")[0]
        assert plain[0] == codec.bos_token_id and chat[0] != codec.bos_token_id
    finally:
        codec._add_bos = before


def test_files_of_every_kind_are_read(tmp_path):
    (tmp_path / "a.txt").write_text("whole\nfile")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as out:
        out.write('{"text": "one"}\n\n{"text": "two"}\n')
    assert [record for _, record in read_records(tmp_path / "a.txt")] == [{"text": "whole\nfile"}]
    assert [where for where, _ in read_records(tmp_path / "b.jsonl.gz")] == [
        f"{tmp_path}/b.jsonl.gz, line 1",
        f"{tmp_path}/b.jsonl.gz, line 3",
    ]
    (tmp_path / "c.jsonl").write_text('{"text": "one"}\n{"text\n')
    with pytest.raises(ConfigError, match="line 2 is not JSON"):
        list(read_records(tmp_path / "c.jsonl"))
    (tmp_path / "c.jsonl").write_text('{"text": "one"}\n' + "[" * 200_000 + "\n")
    with pytest.raises(ConfigError, match="line 2 is not JSON"):
        list(read_records(tmp_path / "c.jsonl"))
    (tmp_path / "d.jsonl").write_text("[1]\n")
    with pytest.raises(ConfigError, match="no table"):
        list(read_records(tmp_path / "d.jsonl"))


@pytest.mark.parametrize("name", ["a.ndjson", "a.JSONL", "a.jsonl.GZ"])
def test_lines_of_json_are_known_by_their_names(name, tmp_path):
    with gzip.open(tmp_path / name, "wt") if name.endswith("GZ") else (tmp_path / name).open("w") as out:
        out.write('{"text": "one"}\n{"text": "two"}\n')
    assert [record for _, record in read_records(tmp_path / name)] == [{"text": "one"}, {"text": "two"}]
    assert find_files([tmp_path]) == [tmp_path / name]


def test_half_a_character_is_named_with_its_line(codec, tmp_path):
    path = write(tmp_path / "x.jsonl", [{"text": "ab"}, {"text": "ab \ud800 cd"}])
    with pytest.raises(ConfigError, match=r"x\.jsonl, line 2: .*half a character: write the whole one"):
        open_corpus([path], codec, codec.vocab_size, tmp_path / "cache")


def test_a_byte_order_mark_is_read_over_and_what_is_damaged_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n')
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfone")
    for name in ("a.jsonl", "b.txt"):
        assert [record for _, record in read_records(tmp_path / name)] == [{"text": "one"}]
    packed = bytearray(gzip.compress(b'{"text": "hello hello"}\n' * 2000))
    for place in (40, 41, 60):
        packed[place] ^= 255
    (tmp_path / "c.jsonl.gz").write_bytes(packed)
    with pytest.raises(ConfigError, match=r"c\.jsonl\.gz is not a readable"):
        list(read_records(tmp_path / "c.jsonl.gz"))


@pytest.mark.parametrize("text", ['[{"text": "one"}]', ' {"text": "one"}\n{"text": "two"}'])
def test_json_is_not_learned_as_text(text, tmp_path):
    (tmp_path / "chats.json").write_text(text)
    with pytest.raises(ConfigError, match=r"chats\.json holds JSON.*one object a line into a file.*\.jsonl"):
        list(read_records(tmp_path / "chats.json"))


def test_of_a_directory_records_are_learned_and_its_readme_is_not(tmp_path):
    for name in ("README.md", "load.py", "data/a.parquet", "data/b.jsonl", "data/c.jsonl.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [str(path.relative_to(tmp_path)) for path in find_files([tmp_path])]
    assert found == ["data/a.parquet", "data/b.jsonl", "data/c.jsonl.gz"]
    assert find_files([tmp_path / "README.md", tmp_path / "data"])[0] == tmp_path / "README.md", (
        "what is named is meant"
    )
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    assert [path.name for path in find_files([tmp_path])] == ["README.md", "load.py"]
    with pytest.raises(ConfigError, match="holds no text"):
        find_files([tmp_path / "data"])
    with pytest.raises(ConfigError, match="no such file"):
        find_files([tmp_path / "none"])


def write(path, records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.fixture
def file(tmp_path):
    examples = [{"token_ids": list(range(1, 2 + i % 9))} for i in range(40)]
    answers = [{"prompt_token_ids": [i, 7], "token_ids": [i, 8, 9]} for i in range(40)]
    return write(tmp_path / "x.jsonl", [*examples, *answers])


def test_the_accounts_add_up_and_a_corpus_is_made_once(file, tmp_path):
    train, valid, told = open_corpus([file], None, 50, tmp_path / "cache", held_out=0.3)
    assert told.read == 80 == told.kept + told.held_out + told.skipped
    assert told.skipped == 5, "one token is nothing to guess"
    assert (train.num_examples, valid.num_examples) == (told.kept, told.held_out) and told.tokens == len(train.ids)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    again, _, same = open_corpus([file], None, 50, tmp_path / "cache", held_out=0.3)
    assert same == told and np.array_equal(again.ids, train.ids)
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    texts = {tuple(one.ids[one.starts[i] : one.starts[i + 1]]) for one in (train,) for i in range(one.num_examples)}
    held = {tuple(valid.ids[valid.starts[i] : valid.starts[i + 1]]) for i in range(valid.num_examples)}
    assert not texts & held, "an example that comes twice is in one split"


@pytest.mark.parametrize("name", ["train-ids.npy", "valid-starts.npy", "about.json"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "other"])
def test_a_damaged_corpus_is_made_again(file, tmp_path, name, damage):
    train, _, told = open_corpus([file], None, 50, tmp_path / "cache", held_out=0.3)
    (place,) = (tmp_path / "cache").rglob(name)
    whole = place.read_bytes()
    place.unlink()
    if damage != "gone":
        place.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"{}"}[damage])
    again, _, same = open_corpus([file], None, 50, tmp_path / "cache", held_out=0.3)
    assert same == told and np.array_equal(again.ids, train.ids) and place.read_bytes() == whole


def test_a_corpus_without_examples_is_refused(tmp_path):
    for records, message in (
        ([{"token_ids": [1]}], "1 are too short"),
        ([{"token_ids": [1, 2]}], "hold out another share"),
        ([{"token_ids": [1, 99]}], "outside the target's vocabulary of 50"),
    ):
        path = write(tmp_path / "y.jsonl", records)
        with pytest.raises(ConfigError, match=message):
            open_corpus([path], None, 50, tmp_path / "cache", held_out=0.1)


def test_text_is_closed_by_the_end_token(codec, tmp_path):
    path = write(tmp_path / "t.jsonl", [{"text": f"number {i}"} for i in range(30)])
    train, _, _ = open_corpus([path], codec, codec.vocab_size, tmp_path / "cache", held_out=0.2)
    (end,) = codec.eos_token_ids
    assert all(train.ids[stop - 1] == end for stop in train.starts[1:])


def test_text_whose_ids_are_null_is_text(codec, tmp_path):
    """As in Parquet, whose rows have every column: it gets its end, and no model is said to have written it."""
    texts = ["one", "two"]
    write(tmp_path / "plain.jsonl", [{"text": text} for text in texts])
    write(tmp_path / "null.jsonl", [{"text": text, "token_ids": None, "target": "abc"} for text in texts])
    plain, null = (
        open_corpus([tmp_path / f"{name}.jsonl"], codec, codec.vocab_size, tmp_path / name, held_out=0.0)
        for name in ("plain", "null")
    )
    assert plain[0].digest == null[0].digest and plain[2] == null[2]


def test_nothing_behind_the_end_of_an_answer_counts(codec, tmp_path):
    """A template that closes answers by an end token and a new line; in a text end tokens stand between its parts."""
    lines = ChatTemplate(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}",
        {},
    )
    path = write(tmp_path / "t.jsonl", [{"messages": CHAT}, {"text": "one<|endoftext|>two"}])
    before, codec.chat_template = codec.chat_template, lines
    try:
        train, _, _ = open_corpus([path], codec, codec.vocab_size, tmp_path / "cache", held_out=0.0)
    finally:
        codec.chat_template = before
    (end,) = codec.eos_token_ids
    chat, text = (slice(*train.starts[i : i + 2]) for i in range(2))
    counted = train.ids[chat][train.counts[chat]].tolist()
    assert counted == [*codec.encode("hello"), end, *codec.encode("bye"), end]
    assert train.ids[chat].tolist().count(end) == 4 and train.ids[chat][-1] != end, "it gets no second end"
    assert train.ids[text].tolist().count(end) == 2 and train.counts[text].all()


def test_an_epoch_holds_every_token_once(file, tmp_path):
    train, _, _ = open_corpus([file], None, 50, tmp_path / "cache", held_out=0.3)
    packing = Packing(train, 3)
    length = 10
    an_epoch = (len(train.ids) - 1) // length
    first, second = (packing.rows(epoch * an_epoch, an_epoch, length) for epoch in (0, 1))
    for rows in (first, second):
        assert rows.ids.shape == (an_epoch, length + 1)
        assert torch.equal(rows.ids[1:, 0], rows.ids[:-1, -1]), "a row's last token is the next one's first"
        seen = rows.ids[:, :-1].flatten()
        rest = len(train.ids) - len(seen)
        assert rest <= length
        counts = np.bincount(train.ids, minlength=50) - np.bincount(seen.numpy(), minlength=50)
        assert counts.min() >= 0 and counts.sum() == rest
    assert not torch.equal(first.ids, second.ids)
    some = Packing(train, 3).rows(2, 3, length)
    assert torch.equal(some.ids, first.ids[2:5]) and torch.equal(some.counts, first.counts[2:5])


def test_rows_know_their_examples(file, tmp_path):
    train, _, _ = open_corpus([file], None, 50, tmp_path / "cache", held_out=0.3)
    rows = Packing(train, 0).rows(0, 6, 16)
    wholes = {tuple(train.ids[train.starts[i] : train.starts[i + 1]]): i for i in range(train.num_examples)}
    whole = 0
    for ids, documents, counts in zip(rows.ids, rows.documents, rows.counts, strict=True):
        steps = documents.diff()
        assert int(steps.min()) >= 0 and int(steps.max()) <= 1
        assert not bool(counts[steps == 1].any()), "the first token of an example follows from nothing"
        for number in range(1, int(documents[-1])):  # neither the first nor the last, which may be cut
            text = tuple(ids[documents == number].tolist())
            i = wholes[text]
            own = train.counts[train.starts[i] + 1 : train.starts[i + 1]]
            assert counts[(documents[1:] == number) & (steps == 0)].tolist() == own.tolist()
            whole += 1
    assert whole > 10


def test_a_corpus_shorter_than_a_row_is_padded(tmp_path):
    path = write(tmp_path / "z.jsonl", [{"token_ids": [3, 4, 5]}, {"token_ids": [6, 7]}])
    train, _, _ = open_corpus([path], None, 50, tmp_path / "cache", held_out=0.0)
    rows = Packing(train, 0).rows(0, 2, 8)
    assert rows.ids.shape == (2, 9) and int(rows.counts[0].sum()) == 3
    assert not bool(rows.counts[:, 4:].any())


def test_examples_one_a_row(tmp_path):
    path = write(
        tmp_path / "z.jsonl",
        [{"prompt_token_ids": [1], "token_ids": [2, 3]}, {"token_ids": [4, 5, 6, 7, 8]}, {"token_ids": [9, 9]}],
    )
    train, _, _ = open_corpus([path], None, 50, tmp_path / "cache", held_out=0.0)
    first, second = example_rows(train, 3, 3, 6)
    assert first.ids.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert first.counts.tolist() == [[True, True, False], [True, True, True]]
    assert first.documents.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]
    assert second.ids.tolist() == [[9, 9, 0, 0]] and second.counts.tolist() == [[True, False, False]]
    assert len(example_rows(train, 1, 3, 6)) == 1


def test_a_far_answer_is_looked_at_where_it_stands(tmp_path):
    path = write(tmp_path / "z.jsonl", [{"prompt_token_ids": list(range(1, 40)), "token_ids": [41, 42]}])
    train, _, _ = open_corpus([path], None, 50, tmp_path / "cache", held_out=0.0)
    (rows,) = example_rows(train, 3, 8, 16)
    assert rows.ids.shape[1] <= 9 and rows.ids[0].tolist()[-2:] == [41, 42] and int(rows.counts.sum()) == 2


def test_the_cache_knows_what_ids_depend_on(codec, tmp_path):
    path = write(tmp_path / "c.jsonl", [{"messages": CHAT}] * 3)
    made = []
    for template in (TEMPLATE, None, TEMPLATE):
        codec.chat_template = template
        train, _, _ = open_corpus([path], codec, codec.vocab_size, tmp_path / "cache", held_out=0.0)
        made.append(train.ids.tolist())
    assert made[0] == made[2] != made[1] and len(list((tmp_path / "cache").iterdir())) == 2
    codec.chat_template = None
    with pytest.raises(ConfigError, match="outside"):
        open_corpus([path], codec, 50, tmp_path / "cache", held_out=0.0)


def test_the_cache_knows_whether_a_start_token_is_put_before_texts(codec, tmp_path):
    path, before = write(tmp_path / "c.jsonl", [{"text": "hello"}] * 3), codec._add_bos
    try:
        for adds in (False, True):
            codec._add_bos = adds
            train, _, _ = open_corpus([path], codec, codec.vocab_size, tmp_path / "cache", held_out=0.0)
            assert (train.ids[0] == codec.bos_token_id) is np.bool_(adds)
    finally:
        codec._add_bos = before


def test_what_an_engine_wrote_gets_no_end_and_text_gets_no_second_one(codec, tmp_path):
    codec.eos_token_ids = frozenset({0, 7})
    try:
        path = write(tmp_path / "e.jsonl", [{"token_ids": [5, 6]}, {"text": "abc"}])
        train, _, _ = open_corpus([path], codec, codec.vocab_size, tmp_path / "cache", held_out=0.0)
        assert train.ids[:2].tolist() == [5, 6] and train.starts[1] == 2 and train.ids[-1] == 0
    finally:
        codec.eos_token_ids = frozenset({0})


def test_examples_that_begin_alike_are_not_all_held_out_or_none(tmp_path):
    """An agent's examples have a long prompt in common."""
    common = [i % 47 for i in range(1000)]
    examples = [{"prompt_token_ids": common, "token_ids": [i // 50, i % 50, 1]} for i in range(200)]
    _, _, told = open_corpus([write(tmp_path / "a.jsonl", examples)], None, 50, tmp_path / "cache", held_out=0.3)
    assert 30 < told.held_out < 90
