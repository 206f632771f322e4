"""A codec need not be of text: the engine asks it for a stream of its own and for nothing that only text has."""

from outdraft import LLM, SamplingParams
from outdraft.models.files.load import save_model
from outdraft.testing.tiny import tiny_model


class GreyRows:
    """Ids 0..3 are grey levels, drawn in rows of four; id 4 ends the picture."""

    vocab_size = 5
    eos_token_ids = frozenset((4,))

    def stream(self, *, continues=True):
        return GreyStream()


class GreyStream:
    """A row of the picture when it is whole."""

    def __init__(self):
        self.row = ""

    def push(self, token):
        self.row += " .:#"[token] if token < 4 else ""
        if len(self.row) < 4:
            return ""
        row, self.row = self.row, ""
        return row + "\n"

    def finish(self):
        return self.row


def test_an_answer_of_pixels_is_streamed_by_its_own_codec(tmp_path, monkeypatch):
    save_model(tiny_model(vocab=5), tmp_path)
    monkeypatch.setattr("outdraft.engine.llm.load_codec", lambda directory: GreyRows())
    llm = LLM(tmp_path, dtype="float32", drafter="ngram", num_speculative_tokens=3)
    params = SamplingParams(max_tokens=18, temperature=1, seed=3, stop_token_ids=[4])
    prompt = {"prompt_token_ids": [1, 2, 1, 2]}
    result = llm.generate(prompt, params)
    drawn = "".join(" .:#"[token] for token in result.token_ids if token < 4)
    assert len(drawn) > 4 and result.text == "\n".join(drawn[i : i + 4] for i in range(0, len(drawn), 4))
    assert "".join(chunk.text for chunk in llm.stream(prompt, params)) == result.text
    assert result.text == llm.with_drafter("none").generate(prompt, params).text
