"""A codec whose ids are no text: images are written by the same engine, and what only text has is refused."""

import pytest
import torch
from helpers.pixels import LEVELS, WIDTH, PixelCodec

from outdraft import LLM, SamplingParams
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError, ModelLoadError, RequestError
from outdraft.testing.tiny import tiny_model

IMAGE = torch.arange(3 * WIDTH).view(3, WIDTH) % LEVELS
PROMPT = {"prompt": IMAGE}
TWENTY_ONE = SamplingParams(max_tokens=21, temperature=0, ignore_eos=True)  # five rows, and one pixel of the sixth


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("pixels")
    save_model(tiny_model("llama", vocab=LEVELS + 1, seed=3), place)
    return place


@pytest.fixture(scope="module")
def plain(directory):
    return LLM(directory, codec=PixelCodec(), drafter="none")


def test_an_image_is_continued_as_an_image(plain, directory):
    result = plain.generate(PROMPT, TWENTY_ONE)
    assert result.prompt_token_ids == tuple(IMAGE.flatten().tolist()), "a prompt is what the codec encodes"
    assert result.text == "" and len(result.token_ids) == 21
    assert result.content.shape == (6, WIDTH), "the row that was cut short is filled up"
    assert torch.equal(result.content, PixelCodec().decode(result.token_ids))

    drafted = plain.with_drafter("ngram", num_speculative_tokens=4)
    same = drafted.generate(PROMPT, TWENTY_ONE)
    assert same.token_ids == result.token_ids and torch.equal(same.content, result.content)
    assert same.stats.num_steps < result.stats.num_steps, "the drafter's guesses are pixels, too"


@pytest.mark.parametrize("interval", [0, 1, 6])
def test_pieces_join_to_the_image(plain, interval):
    whole = plain.generate(PROMPT, TWENTY_ONE)
    chunks = list(plain.stream(PROMPT, TWENTY_ONE, stream_interval=interval))
    pieces = [piece for chunk in chunks for piece in chunk.pieces]
    assert torch.equal(torch.cat(pieces), whole.content)
    assert all(chunk.text == "" for chunk in chunks) and len(chunks) > 2
    assert sum(len(piece) for piece in pieces[:21]) == 5, "a row is shown when it is whole"


def test_an_end_token_is_no_pixel(plain):
    free = SamplingParams(max_tokens=6, temperature=0, logit_bias={LEVELS: 100.0})
    result = plain.generate(PROMPT, free)
    assert result.token_ids == (LEVELS,) and result.finish_reason == "stop" and len(result.content) == 0


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        (lambda llm: llm.generate(PROMPT, SamplingParams(stop=("x",))), "stop="),
        (lambda llm: llm.generate(PROMPT, SamplingParams(bad_words=("x",))), "bad_words="),
        (lambda llm: llm.generate(PROMPT, SamplingParams(forced_prefix="x")), "forced_prefix="),
        (lambda llm: llm.generate(PROMPT, SamplingParams(structured_outputs={"regex": "a"})), "structured_outputs"),
        (lambda llm: llm.generate("x"), "the prompt 'x'"),
        (lambda llm: llm.chat([{"role": "user", "content": "x"}]), "a conversation"),
        (lambda llm: llm.get_tokenizer(), "a tokenizer"),
    ],
)
def test_what_only_text_has_is_refused_in_the_same_words(plain, ask, wanted):
    with pytest.raises(RequestError, match=f"{wanted}.* is for text, and the model's codec is of Tensor: leave it out"):
        ask(plain)
    assert plain.tokenizer is None and isinstance(plain.codec, PixelCodec)


def test_its_own_refusal_reaches_the_caller(plain):
    with pytest.raises(RequestError, match="4 columns"):
        plain.generate({"prompt": IMAGE.flatten()})


def test_a_codec_must_be_one_and_fit_the_model(directory):
    with pytest.raises(ConfigError, match="codec="):
        LLM(directory, codec="pixels", drafter="none")
    wide = PixelCodec()
    wide.vocab_size = 99
    with pytest.raises(ModelLoadError, match="9 embeddings, and its codec 99 ids"):
        LLM(directory, codec=wide, drafter="none")
