"""Sampling settings under the names of other libraries: what each is called here, and what is refused with its cure.

Data in: a name; data out: ours, or why there is none.
"""

from collections.abc import Collection

from outdraft.options.errors import RequestError
from outdraft.options.near_miss import near_miss

CALLED = {  # what other libraries call it
    **dict.fromkeys(("max_new_tokens", "max_length", "max_completion_tokens", "n_predict"), "max_tokens"),
    **dict.fromkeys(("num_return_sequences", "best_of"), "n"),
    **dict.fromkeys(("cfg_scale", "cfg"), "guidance_scale"),
    "min_new_tokens": "min_tokens",
    "stop_strings": "stop",
    "repeat_penalty": "repetition_penalty",
    "do_sample": "temperature (0 is greedy)",
    "frequence_penalty": "frequency_penalty",
    "eos_token_id": "stop_token_ids",
    "top_logprobs": "logprobs",
    "bad_words_ids": "bad_words",
    "suppress_tokens": "banned_token_ids",
    **dict.fromkeys(("guided_json", "json_schema"), "structured_outputs ({'json': schema})"),
    **dict.fromkeys(("guided_regex", "regex"), "structured_outputs ({'regex': pattern})"),
    **dict.fromkeys(("guided_grammar", "grammar"), "structured_outputs ({'grammar': text})"),
    "guided_choice": "structured_outputs ({'choice': [...]})",
    "guided_json_object": "structured_outputs ({'json_object': True})",
    "guided_decoding": "structured_outputs (a table with json, regex, choice, grammar or json_object)",
    "guided_whitespace_pattern": "structured_outputs ({'json': schema, 'whitespace_pattern': pattern})",
    "response_format": "structured_outputs ({'json': schema} or {'json_object': True})",
}

_BESIDE = "it belongs to a prompt: generate(prompt, SamplingParams(guidance_scale=1.5), negative_prompt=...)"
ELSEWHERE = dict.fromkeys(("negative_prompt", "negative_prompt_ids", "negative_prompt_token_ids"), _BESIDE)

_BEAMS = (
    "beam search is not here, because it searches for a probable text and does not sample from the target's "
    "distribution: leave it out; temperature=0 takes the best token at every position, and n=4 with a temperature "
    "writes several texts, of which logprobs=0 shows the most probable"
)
REFUSED = dict.fromkeys(
    "use_beam_search num_beams beam_width beam_size num_beam_groups length_penalty diversity_penalty "
    "early_stopping".split(),
    _BEAMS,
)


def called_here(name: str, known: Collection[str]) -> str | None:
    """Our name of a sampling setting, by its name here (`known`) or in another library; None for what is none.

    Raises `RequestError` for a setting that is refused by name.
    """
    if name in REFUSED:
        raise RequestError(f"{name}: {REFUSED[name]}")
    return name if name in known and name != "unknown" else CALLED.get(name, "").partition(" ")[0] or None


def hint(name: str, known: Collection[str]) -> str:
    """What an error says behind an unknown name, one of the `known` perhaps being meant."""
    if name in REFUSED:
        return f": {REFUSED[name]}"
    if name in ELSEWHERE:
        return f": {ELSEWHERE[name]}"
    meant = CALLED.get(name)
    return f"; here it is called {meant}" if meant else near_miss(name, list(known))
