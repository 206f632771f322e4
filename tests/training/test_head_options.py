"""How many heads, steps and layers a kind of heads may have: one check for all kinds."""

import pytest

from outdraft.core.learner_registry import find_learner
from outdraft.options.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "name", "most"),
    [(kind, "num_heads", 64) for kind in ("amphista", "blockwise", "hydra", "medusa")]
    + [("redrafter", "num_steps", 64)]
    + [(kind, "num_layers", 16) for kind in ("amphista", "hydra", "medusa", "redrafter")],
)
def test_so_many_heads_steps_and_layers_there_may_be(kind, name, most):
    options = find_learner(kind).options
    assert getattr(options(**{name: most}), name) == most
    for wrong in (0, most + 1):
        with pytest.raises(ConfigError, match=f"{name}={wrong}"):
            options(**{name: wrong})
