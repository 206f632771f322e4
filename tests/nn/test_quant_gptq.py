"""Calibrated rounding: the same grid, outputs nearer to the original's than rounding to nearest gives."""

import pytest
import torch

from outdraft.kernels.decoder import grid
from outdraft.models.networks.divergence import compare_distributions
from outdraft.models.remake.calibrate import calibrate_decoder
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.quant import QuantConfig
from outdraft.nn.quant.gptq import choose_integers
from outdraft.testing.tiny import tiny_model


def going_together(num_rows, num_in):
    """Rows whose channels are mixtures of a few causes, as a network's are."""
    generator = torch.Generator().manual_seed(1)
    causes = torch.randn(num_rows, num_in // 4, generator=generator)
    mix = torch.randn(num_in // 4, num_in, generator=generator)
    return causes @ mix + 0.3 * torch.randn(num_rows, num_in, generator=generator)


@pytest.mark.parametrize(("bits", "group_size"), [(4, 32), (4, 0), (8, 64)])
def test_outputs_are_nearer_than_by_rounding_to_nearest(bits, group_size):
    weight = torch.randn(24, 192, generator=torch.Generator().manual_seed(0))
    learned, held_out = going_together(2000, 192).split(1000)
    integers, scales = choose_integers(weight, learned.t() @ learned, bits, group_size)
    low, high = (-8, 7) if bits == 4 else (-127, 127)
    assert int(integers.min()) >= low and int(integers.max()) <= high
    assert scales.shape == (24, 192 // group_size if group_size else 1) and scales.dtype == torch.float32
    nearest_scales = grid.find_scales(weight, bits, group_size)
    nearest = grid.times_scales(grid.round_to_grid(weight, nearest_scales, bits, group_size), nearest_scales)
    chosen = grid.times_scales(integers, scales)
    error, baseline = (float((held_out @ (made - weight).t()).square().mean()) for made in (chosen, nearest))
    assert error < 0.7 * baseline


def test_inputs_that_say_nothing_of_each_other_leave_rounding_to_nearest():
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    integers, scales = choose_integers(weight, torch.eye(64), 4, 32)
    expected = grid.find_scales(weight, 4, 32)
    assert torch.equal(integers, grid.round_to_grid(weight, expected, 4, 32))
    torch.testing.assert_close(scales, expected)


def test_a_decoder_keeps_its_distribution_better():
    model = tiny_model(hidden=64, dtype=torch.float32, exact=False)
    windows = torch.randint(61, (24, 32), generator=torch.Generator().manual_seed(0))
    config = QuantConfig(bits=4, group_size=0, keep=())
    seen = []
    chosen = calibrate_decoder(model, config, windows[:16], lambda done, count: seen.append((done, count)))
    nearest = quantize_decoder(model, config)
    assert seen[0] == (0, 9) and seen[-1] == (9, 9)
    assert (
        compare_distributions(model, chosen, windows[16:]).kl < compare_distributions(model, nearest, windows[16:]).kl
    )
