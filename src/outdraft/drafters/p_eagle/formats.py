"""P-EAGLE directories: speculators' layout, which is our own too. Flat ones with a mask are read as well.

A directory is one of P-EAGLE if it has the tensor `mask_hidden` and names the token that stands beside it. How many
tokens it was trained to guess at once stands where servers look for it: `speculative_tokens`.
"""

from functools import partial

from outdraft.core.head_format import served_here
from outdraft.drafters.shared.features.fused.files import FusedKind
from outdraft.drafters.shared.features.fused.store import Format, load_fused, save_fused, speculators_format

KIND = FusedKind(what="P-EAGLE network", model_type="peagle", architecture="PEagleDraftModel", masked=True)
load_p_eagle, save_p_eagle = partial(load_fused, KIND), partial(save_fused, KIND)
FORMATS: tuple[Format, ...] = (
    speculators_format(
        KIND,
        summary="speculators' P-EAGLE, which is ours too",
        served={"outdraft": served_here("p_eagle"), "vllm": "vllm serve {out}"},
    ),
)
