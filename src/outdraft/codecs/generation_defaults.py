"""generation_config.json: which tokens end a text.

Its defaults of sampling are for each request to give, and what would keep tokens out of a text, or put them in, is not
applied; both are noted.
"""

import logging
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

from outdraft.codecs.documents import read_json
from outdraft.codecs.noted import note
from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError

_FILE = "generation_config.json"
# Settings that a request has by the same or another name, and their values that change nothing.
_SAMPLING: dict[str, tuple[Any, ...]] = {
    "do_sample": (None, False), "temperature": (None, 1), "top_k": (None, 0), "top_p": (None, 1), "min_p": (None, 0),
    "typical_p": (None, 1), "repetition_penalty": (None, 1), "max_length": (None,), "max_new_tokens": (None,),
    "min_length": (None, 0), "min_new_tokens": (None, 0), "stop_strings": (None, []), "num_return_sequences": (None, 1),
    "guidance_scale": (None, 1), "bad_words_ids": (None, []), "sequence_bias": (None, [], {}),
}  # fmt: skip
# Other tokens than those of the distribution that a request asks for.
_CHANGES: dict[str, tuple[Any, ...]] = {
    "suppress_tokens": (None, []), "begin_suppress_tokens": (None, []), "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,), "forced_decoder_ids": (None, []), "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0), "encoder_repetition_penalty": (None, 1), "num_beams": (None, 1),
    "num_beam_groups": (None, 1), "diversity_penalty": (None, 0), "length_penalty": (None, 1), "penalty_alpha": (None,),
    "dola_layers": (None,), "exponential_decay_length_penalty": (None,), "epsilon_cutoff": (None, 0),
    "eta_cutoff": (None, 0), "top_h": (None,), "watermarking_config": (None,), "constraints": (None, []),
    "force_words_ids": (None, []), "token_healing": (None, False), "decoder_start_token_id": (None,),
}  # fmt: skip


def read_ends(directory: Path, otherwise: Iterable[int]) -> list[int]:
    """Ids of the tokens that end a text; `otherwise`: where the file is not there, or names none.

    Raises `ModelLoadError` for a damaged file, or for ids that are none.
    """
    said = read_json(directory / _FILE)
    where = f"{directory.name}/{_FILE}"
    asked = {key: said[key] for key, off in _SAMPLING.items() if said.get(key) not in off}
    note(where, asked, "not the defaults here: give them with each request")
    changes = {key: said[key] for key, off in _CHANGES.items() if said.get(key) not in off}
    note(where, changes, "not applied: the text follows the model's own distribution", level=logging.WARNING)
    eos = said.get("eos_token_id", list(otherwise))
    ids = [] if eos is None else eos if isinstance(eos, list) else [eos]
    return list(check_value("eos_token_id", ids, Seq[int], of=where, error=ModelLoadError))
