"""`outdraft replay`: the table, the lines of other limits, machine output, and files that are no trace."""

import json

import pytest

from outdraft import LLM, SamplingParams, record_trace


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    llm = LLM("zoo:target", drafter="none")
    with record_trace(llm, path):
        llm.generate(["One door", "Another door"], SamplingParams(max_tokens=30, ignore_eos=True))
    return path


def test_the_command(outdraft, recorded):
    ran = outdraft("replay", recorded, "--max-num-seqs", 1, "--plain", "--faster", 2)
    assert ran.code == 0, ran.err
    for word in ("recorded", "replayed", "max_num_seqs=1", "2x as fast", "plain decoding", "against the recording"):
        assert word in ran.out
    told = json.loads(outdraft("replay", recorded, "--json").out)["runs"]
    assert [one["run"] for one in told] == ["recorded", "replayed"]
    assert told[1]["tokens_per_second"] > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no trace"),
        ('{"a": 1}\n', "is no trace"),
        ("nonsense\nmore\n", "line 1 is no JSON"),
        ('{"outdraft_trace": 1}\n{"at": 0, "asks": 3}\n{"at": 1}\n', "is damaged"),
    ],
)
def test_what_is_no_trace_is_refused(outdraft, tmp_path, text, said):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    ran = outdraft("replay", path)
    assert ran.code == 2 and said in ran.err


def test_without_a_trace_the_error_says_what_one_is(outdraft):
    ran = outdraft("replay")
    assert ran.code == 2 and "it needs a trace, a file that outdraft.record_trace wrote" in ran.err
