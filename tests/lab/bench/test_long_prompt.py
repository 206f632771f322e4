"""The bench of a long prompt beside streams: no stream profits from what was written before."""

from argparse import Namespace

from lab.bench import long_prompt
from outdraft import LLM


def test_no_text_is_written_twice_and_every_round_begins_with_nothing_kept(monkeypatch, capsys):
    llm, asked, read = LLM("zoo:target", drafter="none"), [], []
    astream, generate, forget = LLM.astream, LLM.generate, LLM.forget

    def streaming(self, prompt, params):
        asked.append(tuple(prompt["prompt_token_ids"]))
        return astream(self, prompt, params)

    monkeypatch.setattr(long_prompt, "_WARM", 0.0)
    monkeypatch.setattr(long_prompt, "_LENGTH", 8)
    monkeypatch.setattr(LLM, "astream", streaming)
    monkeypatch.setattr(
        LLM, "generate", lambda *given: (read.append(len(given[1]["prompt_token_ids"])), generate(*given))[1]
    )
    monkeypatch.setattr(LLM, "forget", lambda self: (read.append("forget"), forget(self))[1])
    long_prompt._show(llm, Namespace(model="zoo:target", others=2, prompt=96, seconds=0.3, rounds=2, drafter="none"))
    beside = [one for one in asked if len(one) == 24]
    assert len(beside) <= 2 * len(set(beside)), "each once a round"
    assert read == [64, "forget", 96, "forget", 96]
    assert capsys.readouterr().out.count("quiet") == 4
