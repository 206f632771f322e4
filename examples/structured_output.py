"""Answers of a JSON schema, and what its own text saves: tokens per pass with forced tokens, and (without).

What a schema leaves no choice about (names of fields, quotes, colons) is drafted for free. Without that, the drafter
has to guess it like any text.
"""

from dataclasses import replace

from outdraft import LLM, SamplingParams
from outdraft.codecs.grammar.compile import Grammars
from outdraft.core.constraint import Form

NAMES = ("name", "place of birth", "occupation", "favourite_colour")
SCHEMAS = {
    "four texts": {name: {"type": "string", "maxLength": 12} for name in NAMES},
    "choices": {
        "genre": {"enum": ["short story", "novel", "poem"]},
        "finished": {"type": "boolean"},
        "language": {"enum": ["English", "Dutch", "Frisian"]},
    },
    "numbers": {"width": {"type": "integer", "maximum": 999}, "height": {"type": "integer", "maximum": 999}},
    "a list": {"lines": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 2, "maxItems": 3}},
}
PROMPTS = ["The first thing she saw was ", "The captain said: ", "def read_config(path):\n    return "]


class Unforced:
    """A form that does not tell what must come next, for comparison."""

    def __init__(self, form: Form) -> None:
        self.advance, self.allowed, self.is_over, self.forced = form.advance, form.allowed, form.is_over, lambda: []


plain = LLM("zoo:target", drafter="none")
tokenizer = plain.get_tokenizer()
grammars = Grammars(tokenizer, vocab_size=tokenizer.vocab_size, ends=tokenizer.eos_token_ids)
drafters = {name: plain.with_drafter(name, num_speculative_tokens=4) for name in ("ngram", "suffix", "draft_model")}
for title, fields in SCHEMAS.items():
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    form = {"json": schema, "disable_any_whitespace": True}
    for setting in ({}, {"temperature": 1.0, "seed": 1}):
        params = SamplingParams(max_tokens=200, structured_outputs=form, **setting)
        make = grammars.constraint(params.structured_outputs, ignore_eos=False)
        wanted = [result.text for result in plain.generate(PROMPTS, params)]
        cells = []
        for name, llm in drafters.items():
            llm.forget()
            forced = llm.generate(PROMPTS, params)
            llm.forget()
            free = llm.generate(
                PROMPTS, replace(params, structured_outputs=None), constraint=lambda make=make: Unforced(make())
            )
            taus = [
                sum(r.stats.num_tokens for r in one) / sum(r.stats.num_steps for r in one) for one in (forced, free)
            ]
            is_same = all([result.text for result in one] == wanted for one in (forced, free))
            cells.append(f"{name} {taus[0]:.2f} ({taus[1]:.2f}){'' if is_same else ' DIFFERENT'}")
        print(f"{title:10} {'seeded' if setting else 'greedy'}  {'  '.join(cells)}  {wanted[0]}")
