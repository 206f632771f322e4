"""Structured output through `LLM`: the form holds with every drafter, and every other setting means what it meant."""

import asyncio
import json
import re

import pytest

from outdraft import LLM, SamplingParams
from outdraft.core.registry import names
from outdraft.core.request import Request
from outdraft.engine.loop import Engine
from outdraft.options.errors import OutdraftError, RequestError

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMS = {
    "json": {"json": PERSON, "disable_any_whitespace": True},
    "blanks": {"json": json.dumps(PERSON)},
    "regex": {"regex": "[a-f]{3}(-[0-9]{2}){2}!"},
    "choice": {"choice": ["yes, of course", "yes", "nö"]},
    "grammar": {"grammar": 'start: "<" word ">"\nword: /[a-z]{1,9}/ | "<" word ">"'},
}
SETTINGS = {
    "greedy": {},
    "seeded": {"temperature": 1.0, "seed": 4},
    "warped": {"temperature": 0.9, "seed": 5, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
    "penalised": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "logit_bias": {40: 2.0}, "logprobs": 1},
}
PROMPTS = ["Once", "Twice upon a time", "aaaa"]


def fits(text, form):
    if "json" in form:
        read = json.loads(text)
        return set(read) == {"name", "age"} and len(read["name"]) <= 8 and 0 <= read["age"] <= 99
    if "choice" in form:
        return text in form["choice"]
    return re.fullmatch(form.get("regex", "<+[a-z]{1,9}>+"), text) is not None


@pytest.fixture(scope="module")
def llms(model_dir, draft_dir):
    plain = LLM(model_dir, drafter="none")
    others = {
        "ngram": plain.with_drafter("ngram", policy="fixed", num_speculative_tokens=4),
        "draft_model": plain.with_drafter({"name": "draft_model", "model": str(draft_dir)}, num_speculative_tokens=3),
        "tree": plain.with_drafter(
            {"name": "draft_model", "model": str(draft_dir), "width": 2}, num_speculative_tokens=3
        ),
        "suffix": LLM(model_dir, drafter="suffix"),
    }
    return {"plain": plain, **others}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("form", FORMS)
def test_every_text_has_the_form_and_is_plain_decodings(llms, form, setting):
    """Each with two of the four that draft, in turn, so that each of these meets every form and every setting."""
    turn = [*FORMS].index(form) + [*SETTINGS].index(setting)
    drafting = [name for i, name in enumerate(llms) if i and (i + turn) % 2]
    params = SamplingParams(max_tokens=120, structured_outputs=FORMS[form], **SETTINGS[setting])
    wanted = llms["plain"].generate(PROMPTS, params)
    for result in wanted:
        assert result.error is None and result.stats.tau == 1.0
        if result.finish_reason == "stop":
            assert fits(result.text, FORMS[form])
    assert form == "grammar" or all(result.finish_reason == "stop" for result in wanted)
    for name in drafting:
        results = llms[name].generate(PROMPTS, params)
        assert [one.text for one in results] == [one.text for one in wanted], name
        assert [one.token_ids for one in results] == [one.token_ids for one in wanted], name
        assert [one.logprobs for one in results] == [one.logprobs for one in wanted], name


def test_forced_tokens_come_for_free(llms):
    """Most letters of this object are the schema's own."""
    params = SamplingParams(max_tokens=120, structured_outputs=FORMS["json"])
    assert min(one.stats.tau for one in llms["suffix"].generate(PROMPTS, params)) > 1.5
    off = llms["suffix"].generate(PROMPTS, params, num_speculative_tokens=0)
    assert {one.stats.tau for one in off} == {1.0}


def test_pieces_join_to_the_text(llms):
    params = SamplingParams(max_tokens=120, structured_outputs=FORMS["json"])
    pieces = list(llms["suffix"].stream("Once", params))
    assert "".join(piece.text for piece in pieces) == llms["plain"].generate("Once", params).text
    assert pieces[-1].finish_reason == "stop"
    found = asyncio.run(llms["suffix"].agenerate("Once", params))
    assert fits(found.text, FORMS["json"])


def test_several_texts_of_one_prompt(llms):
    params = SamplingParams(n=4, temperature=1.0, seed=2, structured_outputs=FORMS["regex"])
    results = [llms[name].generate("Once", params) for name in ("plain", "suffix")]
    texts = [[one.text for one in result.outputs] for result in results]
    assert texts[0] == texts[1] and len(set(texts[0])) > 1 and all(fits(text, FORMS["regex"]) for text in texts[0])


def test_the_end_is_the_forms(llms):
    """No end token is written where nothing else may follow; elsewhere it may be, and min_tokens puts it off."""
    llm = llms["suffix"]
    (end,) = llm.codec.eos_token_ids
    whole = llm.generate("Once", SamplingParams(structured_outputs={"regex": "[ab]{7}"}))
    assert (whole.finish_reason, len(whole.token_ids)) == ("stop", 7) and end not in whole.token_ids
    likes_ends = {"logit_bias": {end: 100.0}, "structured_outputs": {"regex": "a+"}}
    at_once = llm.generate("Once", SamplingParams(**likes_ends))
    assert (at_once.text, at_once.token_ids[1:], at_once.finish_reason) == ("a", (end,), "stop")
    assert llm.generate("Once", SamplingParams(min_tokens=5, **likes_ends)).text == "aaaaa"
    ignored = llm.generate("Once", SamplingParams(ignore_eos=True, max_tokens=9, **likes_ends))
    assert (ignored.text, ignored.finish_reason) == ("a" * 9, "length")
    short = llm.generate("Once", SamplingParams(max_tokens=5, structured_outputs={"regex": "[ab]{7}"}))
    assert (len(short.text), short.finish_reason) == (5, "length")
    longer = llm.generate("Once", SamplingParams(min_tokens=9, structured_outputs={"regex": "[ab]{7}"}))
    assert len(longer.text) == 7  # a form that is complete goes on with nothing


def test_stops_cut_as_ever(llms):
    params = SamplingParams(stop="me", structured_outputs=FORMS["json"])
    for llm in (llms["plain"], llms["suffix"]):
        cut = llm.generate("Once", params)
        assert (cut.text, cut.finish_reason) == ('{"na', "stop")
    at = SamplingParams(stop_token_ids=llms["plain"].codec.encode("m"), structured_outputs=FORMS["json"])
    assert llms["suffix"].generate("Once", at).text == '{"na'


def test_constrained_requests_beside_free_ones(llms):
    free = SamplingParams(max_tokens=20)
    settings = [SamplingParams(structured_outputs=FORMS[form]) for form in ("json", "regex")]
    batch = [settings[0], free, settings[1], free]
    alone = [llms["plain"].generate("Once", params).text for params in batch]
    assert [one.text for one in llms["ngram"].generate(["Once"] * 4, batch)] == alone


@pytest.mark.logs_faults
def test_a_grammar_that_fails_ends_its_own_request(llms, monkeypatch):
    llm = llms["suffix"]
    honest = llm._prompts.grammars.constraint

    def failing(form, **rest):
        make = honest(form, **rest)
        return make if form.kind != "regex" else (lambda: Failing(make()))

    class Failing:
        def __init__(self, form):
            self.form, self.count = form, 0

        def advance(self, token):
            self.count += 1
            self.form.advance(token)

        def allowed(self, path):
            if self.count + len(path) >= 3:
                raise RequestError("the grammar takes too much work")
            return self.form.allowed(path)

    monkeypatch.setattr(llm._prompts.grammars, "constraint", failing)
    settings = [SamplingParams(structured_outputs=FORMS[form]) for form in ("json", "regex", "json")]
    first, broken, last = llm.generate(["Once"] * 3, settings)
    assert broken.finish_reason == "error" and "too much work" in str(broken.error)
    assert first.text == last.text and fits(first.text, FORMS["json"])


def test_what_cannot_be_asked(llms):
    llm = llms["suffix"]
    with pytest.raises(RequestError, match="regex of structured_outputs cannot be compiled"):
        llm.generate(["a", "b"], SamplingParams(structured_outputs={"regex": "("}))
    with pytest.raises(RequestError, match="structured_outputs and constraint both"):
        llm.generate("a", SamplingParams(structured_outputs={"regex": "a"}), constraint=lambda: None)
    with pytest.raises(
        RequestError, match=r"structured_outputs=.* is a sampling setting, and belongs in SamplingParams"
    ):
        llm.generate("a", structured_outputs={"regex": "a"})
    request = Request(prompt_token_ids=(1,), params=SamplingParams(structured_outputs={"regex": "a"}))
    with pytest.raises(RequestError, match="compiled where prompts are read"):
        llm.engine.prepare(request)


def test_a_model_without_a_tokenizer_says_so(model_dir, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model_dir / name).read_bytes())
    with pytest.raises(RequestError, match="structured_outputs needs a tokenizer"):
        LLM(tmp_path).generate({"prompt_token_ids": [1]}, SamplingParams(structured_outputs={"regex": "a"}))


@pytest.mark.slow
def test_every_drafter_that_the_zoo_can_build():
    """Real grammars, trained weights, the kernels' chains: the texts of plain decoding, and no drafter fails."""
    plain = LLM("zoo:target", drafter="none")
    asked = [
        SamplingParams(max_tokens=90, structured_outputs={"json": PERSON}, **SETTINGS[name])
        for name in ("greedy", "seeded", "warped")
    ]
    wanted = [[one.token_ids for one in plain.generate(PROMPTS, params)] for params in asked]
    count = 0
    for name in names("drafter"):
        try:
            llm = plain.with_drafter(name, num_speculative_tokens=4)
        except OutdraftError:  # it needs a head or a datastore
            continue
        count += 1
        assert [[one.token_ids for one in llm.generate(PROMPTS, params)] for params in asked] == wanted, name
        llm.close()
    assert count > 20


def test_a_text_that_is_read_again_goes_on_where_it_was(monkeypatch):
    """Little memory: texts give theirs back and are read again, and the form gets nothing twice."""
    given_back = []
    honest = Engine._give_back
    monkeypatch.setattr(Engine, "_give_back", lambda self, seq: (given_back.append(seq.num_output), honest(self, seq)))
    fields = [f"field number {i}" for i in range(9)]
    schema = {"type": "object", "properties": {name: {"type": "integer", "maximum": 99} for name in fields}}
    params = SamplingParams(max_tokens=150, structured_outputs={"json": {**schema, "required": fields}})
    prompts = [f"Chapter {i}. " for i in range(6)]
    wanted = [one.text for one in LLM("zoo:target", drafter="none").generate(prompts, params)]
    little = LLM("zoo:target", drafter="ngram", kv_cache_memory=3 * 128 * 6 * 2 * 2 * 32 * 2)
    results = little.generate(prompts, params)
    assert [one.text for one in results] == wanted and max(given_back) > 0
    assert all(set(json.loads(one.text)) >= set(fields) for one in results if one.finish_reason == "stop")
