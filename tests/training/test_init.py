"""--init goes on from a draft whose shape is its own."""

import pytest
import torch

from outdraft.core.errors import ConfigError
from outdraft.core.registry import find_learner
from outdraft.testing.tiny import tiny_model
from outdraft.training.init import require_shape


@pytest.mark.parametrize(
    ("kind", "made", "same", "other", "culprit"),
    [
        ("medusa", {"num_heads": 2}, {"num_heads": 2, "decay": 0.5}, {"num_heads": 3, "decay": 0.5}, "num_heads=3:"),
        (
            "eagle",
            {"taps": (0, 1)},
            {"taps": (0, 1), "num_steps": 2},
            {"taps": (0, 2), "num_steps": 2},
            r"taps=\(0, 2\):",
        ),
        ("draft_model", {"layers": (0, 2)}, {"layers": (0, 2)}, {"layers": (0,)}, r"layers=\(0,\):"),
        ("early_exit", {"inner_size": 8}, {}, {"inner_size": 4}, "inner_size=4: down"),
    ],
)
def test_options_of_another_shape_are_named(kind, made, same, other, culprit):
    target = tiny_model(vocab=61, layers=3, seed=1, dtype=torch.float32)
    method = find_learner(kind)
    learner = method.new(method.options(**made), target, 0)
    require_shape(learner, method, same, target, "OLD")
    with pytest.raises(ConfigError, match=f"--init OLD holds a draft of another shape than {culprit}"):
        require_shape(learner, method, other, target, "OLD")
