"""ALiBi and sinusoidal positions as formulas, against loops in double precision and the authors' published numbers."""

from __future__ import annotations

import math

import pytest
import torch

from models.positions.alibi import alibi_bias, alibi_slopes
from models.positions.sinusoidal import sinusoidal_positions


def test_slopes_of_the_paper() -> None:
    assert torch.equal(alibi_slopes(8), torch.tensor([2.0**-k for k in range(1, 9)]).double())
    sixteen = torch.tensor([2 ** (-k / 2) for k in range(1, 17)]).double()
    assert torch.allclose(alibi_slopes(16), sixteen, rtol=1e-7)
    assert alibi_slopes(1).tolist() == [2.0**-8]


def test_slopes_of_counts_between_powers_of_two() -> None:
    """Those of the power below, then every other one of the power above, steepest first."""
    assert alibi_slopes(6).tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert alibi_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]
    assert alibi_slopes(12)[8:].tolist() == [2 ** (-k / 2) for k in (1, 3, 5, 7)]
    assert len(alibi_slopes(71)) == 71 and alibi_slopes(71).unique().numel() == 71


def test_a_smaller_largest_bias_makes_gentler_slopes() -> None:
    assert alibi_slopes(4, max_bias=4.0).tolist() == [2.0**-1, 2.0**-2, 2.0**-3, 2.0**-4]
    assert alibi_slopes(3, max_bias=4.0).tolist() == [2.0**-2, 2.0**-4, 2.0**-1]


def test_the_bias_is_slope_times_distance() -> None:
    queries, keys = torch.tensor([[3, 4], [0, 7]]), torch.tensor([[0, 1, 2, 3, 4], [9, 0, 5, 6, 7]])
    bias = alibi_bias(alibi_slopes(3), queries, keys)
    assert bias.shape == (2, 3, 2, 5) and bias.dtype == torch.float32
    for row, head, query, key in [(0, 0, 0, 0), (0, 2, 1, 1), (1, 1, 1, 2), (1, 2, 0, 0), (0, 1, 0, 3)]:
        distance = abs(int(queries[row, query]) - int(keys[row, key]))
        assert bias[row, head, query, key].item() == pytest.approx(-alibi_slopes(3)[head].item() * distance)


def test_long_distances_lose_no_precision() -> None:
    """The difference is taken between whole numbers, so 131071 - 131070 is 1 at any position."""
    bias = alibi_bias(alibi_slopes(12), torch.tensor([[131_071]]), torch.tensor([[131_070, 131_071]]))
    assert torch.equal(bias[0, :, 0, 0], -alibi_slopes(12).float()) and (bias[..., 1] == 0).all()


def test_rounded_bias_is_that_of_bfloat16_products() -> None:
    positions = torch.arange(300)[None]
    slopes = alibi_slopes(12)
    bias = alibi_bias(slopes, positions, positions, is_rounded=True)
    products = (slopes.bfloat16()[:, None] * positions.bfloat16()).float()
    near = slice(0, 256)  # whole numbers that bfloat16 holds
    wanted = products[:, None, :] - products[:, :, None]
    causal = torch.ones(300, 300, dtype=torch.bool).tril()
    assert torch.equal(bias[0].masked_fill(~causal, 0)[:, near, near], wanted.masked_fill(~causal, 0)[:, near, near])
    assert (bias - alibi_bias(slopes, positions, positions)).abs().max() > 0.1


@pytest.mark.parametrize("d_model", [6, 7])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_sinusoidal_positions(d_model: int, layout: str) -> None:
    positions = torch.tensor([[0, 5, 1000]])
    waves = sinusoidal_positions(positions, d_model, layout, torch.float64)
    assert waves.shape == (1, 3, d_model)
    sines = math.ceil(d_model / 2)
    for place, position in enumerate(positions[0].tolist()):
        for dimension in range(d_model):
            pair, is_sine = (
                (dimension // 2, dimension % 2 == 0) if layout == "interleaved" else (dimension % sines, dimension < sines)
            )
            angle = position / 10_000 ** (2 * pair / d_model)
            wanted = math.sin(angle) if is_sine else math.cos(angle)
            assert waves[0, place, dimension].item() == pytest.approx(wanted, abs=1e-12)


def test_sinusoidal_positions_as_marian_has_them() -> None:
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    table = marian.MarianSinusoidalPositionalEmbedding(20, 10)
    with torch.no_grad():
        table.weight.copy_(table.create_weight())
    waves = sinusoidal_positions(torch.arange(20)[None], 10, "half")[0]
    assert (waves - table.weight).abs().max() < 1e-6
