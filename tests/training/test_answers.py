"""The target's own answers: accounted for, the same after an interruption, and read back as what to learn."""

import json

import pytest
import torch

from outdraft.engine.llm import LLM
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.statistics import judge_counts
from outdraft.testing.tiny import tiny_model
from outdraft.training.alone import hold
from outdraft.training.answers import Asking, prompts_of, write_answers
from outdraft.training.corpus import open_corpus, require_own_texts
from outdraft.training.lessons import Teacher

from .toys import lesson_rows

ASKING = Asking(temperatures=(1.0, 0.0), max_tokens=6, seed=5)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    place = tmp_path_factory.mktemp("target")
    save_model(tiny_model(vocab=61, seed=1), place)
    return LLM(place, drafter="none", dtype="float32")


PROMPTS = [[1, 2, 3], None, [4, 5], [6], *([i % 50, i % 7] for i in range(70))]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_prompt_is_accounted_for_and_an_interruption_changes_nothing(llm, tmp_path):
    told = write_answers(llm, PROMPTS, ASKING, tmp_path / "whole.jsonl", lambda line: None)
    assert told.read == len(PROMPTS) == told.done + told.failed + told.skipped and told.skipped == 1
    whole = lines(tmp_path / "whole.jsonl")
    assert [one["prompt_token_ids"] for one in whole] == [prompt for prompt in PROMPTS if prompt]
    assert told.tokens == sum(len(one["token_ids"]) for one in whole) > 3 * told.done
    text = (tmp_path / "whole.jsonl").read_text()
    (tmp_path / "part.jsonl").write_text(text[: len(text) * 2 // 5])  # in the middle of a line
    again = write_answers(llm, PROMPTS, ASKING, tmp_path / "part.jsonl", lambda line: None)
    assert (tmp_path / "part.jsonl").read_text() == text and again == told


def test_half_a_line_is_cut_off_in_place(llm, tmp_path, monkeypatch):
    """A kill while the file was written anew would cost all answers."""
    path = tmp_path / "x.jsonl"
    write_answers(llm, PROMPTS[:3], ASKING, path, lambda line: None)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    monkeypatch.setattr(type(path), "write_text", lambda *given, **more: pytest.fail("written anew"))
    write_answers(llm, PROMPTS[:3], ASKING, path, lambda line: None)
    assert path.read_bytes() == whole


def test_temperatures_take_turns_and_the_seed_matters(llm, tmp_path):
    for seed in (5, 6):
        asking = Asking(temperatures=(1.0, 0.0), max_tokens=6, seed=seed)
        write_answers(llm, PROMPTS[2:12], asking, tmp_path / f"{seed}.jsonl", lambda line: None)
    first, second = lines(tmp_path / "5.jsonl"), lines(tmp_path / "6.jsonl")
    same = [a["token_ids"] == b["token_ids"] for a, b in zip(first, second, strict=True)]
    assert same[1::2] == [True] * 5 and not all(same[::2]), "greedy and sampled in turn"


def test_a_request_that_fails_is_counted_and_left_out_of_the_corpus(llm, tmp_path):
    path = tmp_path / "x.jsonl"
    write_answers(llm, [[1, 2], [3, 4]], ASKING, path, lambda line: None)
    too_long = [9] * llm.engine.parts.target.max_len
    told = write_answers(llm, [[1, 2], [3, 4], too_long, [5]], ASKING, path, lambda line: None)
    assert (told.done, told.failed) == (3, 1)
    train, _, accounts = open_corpus([path], None, 61, tmp_path / "cache", held_out=0.0)
    assert accounts.read == 4 and accounts.skipped == 1 and lines(path)[2]["finish_reason"] == "error"
    assert [bool(train.counts[start]) for start in train.starts[:-1]] == [False] * 3


def test_other_answers_and_other_files_are_left_alone(llm, tmp_path):
    path = tmp_path / "x.jsonl"
    write_answers(llm, [[1, 2], [3, 4]], ASKING, path, lambda line: None)
    before = path.read_text()
    for prompts, asking in (
        ([[1, 2], [3, 5]], ASKING),
        ([[0, 0], [1, 2], [3, 4]], ASKING),
        ([[1, 2], [3, 4]], Asking(temperatures=(1.0, 0.0), max_tokens=6, seed=6)),
    ):
        with pytest.raises(ConfigError, match="name another file"):
            write_answers(llm, prompts, asking, path, lambda line: None)
    with pytest.raises(ConfigError, match="holds 1 answers more than there are prompts"):
        write_answers(llm, [[1, 2]], ASKING, path, lambda line: None)
    for text in ('{"text": "mine"}\n{"text": "without an end"}', "notes\n", "half a line"):
        (tmp_path / "mine.jsonl").write_text(text)
        with pytest.raises(ConfigError, match="name another"):
            write_answers(llm, [[1, 2]], ASKING, tmp_path / "mine.jsonl", lambda line: None)
        assert (tmp_path / "mine.jsonl").read_text() == text
    assert path.read_text() == before


def test_prompts_are_what_comes_before_the_answer(tmp_path):
    path = tmp_path / "p.jsonl"
    records = [{"prompt_token_ids": [1, 2], "token_ids": [3]}, {"token_ids": [4, 5, 6, 7]}, {"token_ids": [8]}]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    assert list(prompts_of([path], None, 2)) == [[1, 2], [4, 5], None]
    assert list(prompts_of([path], None, 0)) == [[1, 2], None, None]


def test_answers_say_who_wrote_them_and_sequence_kd_wants_to_know(llm, tmp_path):
    path = tmp_path / "x.jsonl"
    write_answers(llm, [[1, 2], [3, 4]], ASKING, path, lambda line: None, target="ours")
    with pytest.raises(ConfigError, match="answers of another target"):
        write_answers(llm, [[1, 2], [3, 4], [5, 6]], ASKING, path, lambda line: None, target="theirs")
    _, _, told = open_corpus([path], None, 61, tmp_path / "cache", held_out=0.0)
    assert told.writers == {"ours": 2}
    require_own_texts(told, "ours")
    with pytest.raises(ConfigError, match="2 of 2 examples are not known to be written by it"):
        require_own_texts(told, "theirs")
    with path.open("a") as out:
        out.write('{"token_ids": [1, 2, 3]}\n')
    _, _, told = open_corpus([path], None, 61, tmp_path / "cache", held_out=0.0)
    with pytest.raises(ConfigError, match="1 of 3 examples"):
        require_own_texts(told, "ours")


@pytest.mark.parametrize(("temperature", "passes"), [(1.0, True), (0.7, False)])
def test_answers_at_temperature_1_have_the_targets_distribution(temperature, passes, tmp_path):
    """Chi-square of both tokens of many answers to one prompt; answers written at 0.7 are found out."""
    vocab, prompt, count = 6, [1, 2, 3], 400
    target = tiny_model(vocab=vocab, seed=1, dtype=torch.float32)
    save_model(target, tmp_path)
    writer = LLM(tmp_path, drafter="none", dtype="float32")
    asking = Asking(temperatures=(temperature,), max_tokens=2, seed=5)
    write_answers(writer, [prompt] * count, asking, tmp_path / "x.jsonl", lambda line: None)
    found = torch.zeros(1 + vocab, vocab)  # of the first token, and of the second behind each first one
    for line in lines(tmp_path / "x.jsonl"):
        first, second = line["token_ids"]
        found[0, first] += 1
        found[1 + first, second] += 1
    texts = torch.tensor([[*prompt, first, 0] for first in range(vocab)])
    teacher = Teacher(target, ())
    with torch.no_grad():
        p = teacher.logits(teacher.lesson(lesson_rows(texts)).states).softmax(-1).view(vocab, 4, vocab)
    judged = judge_counts(found, torch.cat((p[:1, 2], p[:, 3])), count)
    assert judged.num_tokens == 2 * count and judged.passes == passes, judged


def test_a_file_of_something_else_is_named_and_a_beginning_is_gone_on_with(llm, tmp_path):
    (tmp_path / "model.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"model\.bin is no file of answers"):
        write_answers(llm, [[1, 2]], ASKING, tmp_path / "model.bin", lambda line: None)
    assert (tmp_path / "model.bin").read_bytes() == b"\xff\xfe\x00"
    (tmp_path / "begun.jsonl").write_text('{"prompt_to')
    write_answers(llm, [[1, 2]], ASKING, tmp_path / "begun.jsonl", lambda line: None)
    assert [one["prompt_token_ids"] for one in lines(tmp_path / "begun.jsonl")] == [[1, 2]]


def test_one_process_writes_a_file(llm, tmp_path):
    path = tmp_path / "x.jsonl"
    with path.open("a") as other:
        hold(other, path)
        with pytest.raises(ConfigError, match=r"another process writes .*x\.jsonl: wait until it ends"):
            write_answers(llm, [[1, 2]], ASKING, path, lambda line: None)
        assert path.read_bytes() == b""
    assert write_answers(llm, [[1, 2]], ASKING, path, lambda line: None).done == 1
