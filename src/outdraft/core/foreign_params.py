"""Sampling settings under the names of other libraries: what each is called here, and what is refused with its cure.

Data in: a name; data out: ours, or why there is none.
"""

CALLED = {  # what other libraries call it
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "stop_strings": "stop",
    "num_return_sequences": "n",
    "best_of": "n",
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "do_sample": "temperature (0 is greedy)",
    "frequence_penalty": "frequency_penalty",
    "eos_token_id": "stop_token_ids",
    "top_logprobs": "logprobs",
    "bad_words_ids": "bad_words",
    "suppress_tokens": "banned_token_ids",
}

_BEAMS = (
    "beam search is not here, because it searches for a probable text and does not sample from the target's "
    "distribution: leave it out; temperature=0 takes the best token at every position, and n=4 with a temperature "
    "writes several texts, of which logprobs=0 tells the most probable"
)
REFUSED = dict.fromkeys(
    (
        "use_beam_search", "num_beams", "beam_width", "beam_size", "num_beam_groups", "length_penalty",
        "diversity_penalty", "early_stopping",
    ),
    _BEAMS,
)  # fmt: skip
