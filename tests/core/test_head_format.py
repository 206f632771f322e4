"""The lines that serve a draft, here and elsewhere: as their programs read them."""

import json
import shlex

from outdraft.core.head_format import served_by_sglang, served_by_vllm, served_here


def filled(line: str) -> list[str]:
    """The words of a line, as `convert` prints it."""
    return shlex.split(line.replace("{target}", "T").replace("{out}", "OUT"))


def test_vllm_reads_one_json_object():
    *words, told = filled(served_by_vllm("eagle", 3))
    assert words == ["vllm", "serve", "T", "--speculative-config"]
    assert json.loads(told) == {"method": "eagle", "model": "OUT", "num_speculative_tokens": 3}


def test_sglang_verifies_the_chain_and_the_token_before_it():
    words = filled(served_by_sglang("EAGLE3", 3))
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert words[:3] == ["python", "-m", "sglang.launch_server"] and flags["--model-path"] == "T"
    assert flags["--speculative-draft-model-path"] == "OUT" and flags["--speculative-algorithm"] == "EAGLE3"
    assert (flags["--speculative-num-steps"], flags["--speculative-num-draft-tokens"]) == ("3", "4")


def test_the_own_line_is_a_command_of_ours():
    words = filled(served_here("mtp"))
    assert words == "outdraft generate PROMPT --model T --drafter mtp --drafter-options model=OUT".split()
