"""Parquet: the same records as JSON lines, columns that a row lacks included, and a file that was cut off is named."""

import json

import pytest

from outdraft.options.errors import ConfigError
from outdraft.training.corpus import open_corpus
from outdraft.training.examples import pieces_of, read_records

datasets = pytest.importorskip("datasets")
CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
RECORDS = {
    "texts": [{"text": "one"}, {"text": "two"}],
    "answers": [{"prompt": "a", "response": "b"}, {"prompt": "c", "response": "d"}],
    "chats": [{"messages": CHAT}, {"messages": CHAT * 2}],
    "ids": [{"prompt_token_ids": [1, 2], "token_ids": [3, 4, 5]}, {"prompt_token_ids": [], "token_ids": [6, 7]}],
}


@pytest.mark.parametrize("kind", RECORDS)
def test_rows_are_what_lines_of_json_are(tmp_path, kind, monkeypatch):
    path, records = tmp_path / "x.parquet", RECORDS[kind]
    datasets.Dataset.from_list(records).to_parquet(str(path))
    found = list(read_records(path))
    assert [where for where, _ in found] == [f"{path}, row 1", f"{path}, row 2"]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    plain = [pieces_of(one, None, "x") for _, one in read_records(tmp_path / "x.jsonl")]
    assert [pieces_of(one, None, "x") for _, one in found] == plain


def test_rows_of_several_kinds_have_every_column(tmp_path):
    """What a row lacks is null there."""
    path = tmp_path / "x.parquet"
    shared = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}
    records = [{"messages": CHAT, "conversations": None}, {"messages": None, **shared}]
    datasets.Dataset.from_list(records).to_parquet(str(path))
    first, second = (pieces_of(one, None, "x") for _, one in read_records(path))
    assert first == second


def test_a_corpus_is_made_of_it_and_a_cut_off_file_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    datasets.Dataset.from_list([{"token_ids": [i, i + 1, i + 2]} for i in range(20)]).to_parquet(str(path))
    train, held_out, told = open_corpus([path], None, 50, tmp_path / "cache", held_out=0.2)
    assert told.read == 20 == told.kept + told.held_out and train.num_examples + held_out.num_examples == 20
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"x\.parquet is no whole Parquet file"):
        open_corpus([path], None, 50, tmp_path / "cache", held_out=0.2)
