"""The linear rules: forms that agree, matrices, states, chunks, against formulas written out and Hugging Face's functions."""

from __future__ import annotations

import math

import pytest
import torch

from models.kernels.linear import delta, gated, kernel
from models.kernels.linear.convolution import short_convolution
from models.kernels.linear.decays import lightning_log_decay, retention_log_decay

BATCH, LENGTH, HEADS, D_KEY, D_VALUE = 2, 21, 3, 5, 4


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(rule: str, dtype: torch.dtype = torch.float64, length: int = LENGTH) -> tuple:
    """(function module, q, k, v, what else its functions take) of one rule."""
    shape = (BATCH, length, HEADS)
    q, k = draw(*shape, D_KEY, seed=1, dtype=dtype), draw(*shape, D_KEY, seed=2, dtype=dtype)
    v = draw(*shape, D_VALUE, seed=3, dtype=dtype)
    per_head = -draw(*shape, 1, seed=4, dtype=dtype).abs()
    per_channel = -draw(*shape, D_KEY, seed=5, dtype=dtype).abs()
    beta = draw(*shape, seed=6, dtype=dtype).sigmoid()
    unit = k / k.norm(dim=-1, keepdim=True)
    return {
        "kernel": (kernel, kernel.features(q), kernel.features(k), v, ()),
        "retention": (gated, q, k, v, (retention_log_decay(HEADS).to(dtype)[:, None].expand(*shape, 1), None)),
        "mamba2": (gated, q, k, v, (per_head, 2 * beta)),
        "gated per channel": (gated, q, k, v, (per_channel, beta)),
        "gated delta": (delta, q, unit, v, (per_head, beta)),
        "negative eigenvalues": (delta, q, unit, v, (per_head, 2 * beta)),
        "kimi delta": (delta, q, unit, v, (per_channel, beta)),
    }[rule]


RULES = pytest.mark.parametrize(
    "rule",
    ["kernel", "retention", "mamba2", "gated per channel", "gated delta", "negative eigenvalues", "kimi delta"],
)


def close(first: torch.Tensor, second: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return first.shape == second.shape and bool((first - second).abs().max() < tolerance * (1 + second.abs().max()))


@RULES
@pytest.mark.parametrize("chunk", [1, 4, 7, 20, 21, 64])
def test_the_forms_agree(rule, chunk):
    module, q, k, v, rest = inputs(rule)
    y, state = module.recurrent(q, k, v, *rest)
    for other in (module.chunked(q, k, v, *rest, chunk=chunk), module.quadratic(q, k, v, *rest)):
        assert close(other[0], y) and close(other[1], state)


@RULES
def test_the_forms_agree_after_earlier_tokens(rule):
    module, q, k, v, rest = inputs(rule)
    before = draw(BATCH, HEADS, D_KEY, D_VALUE + (module is kernel), seed=7).abs()
    y, state = module.recurrent(q, k, v, *rest, state=before)
    for other in (module.chunked(q, k, v, *rest, state=before, chunk=4), module.quadratic(q, k, v, *rest, state=before)):
        assert close(other[0], y) and close(other[1], state)
    assert not close(y, module.recurrent(q, k, v, *rest)[0], 1e-3)


@RULES
@pytest.mark.parametrize("cuts", [[1] * LENGTH, [8, 1, 12], [20, 1]])
def test_a_sequence_in_pieces_is_the_whole(rule, cuts):
    module, q, k, v, rest = inputs(rule)
    whole, last = module.chunked(q, k, v, *rest, chunk=4)
    state, parts = None, []
    for start, n in zip([0, *torch.tensor(cuts).cumsum(0).tolist()], cuts, strict=False):
        pieces = [x if x is None else x[:, start : start + n] for x in (q, k, v, *rest)]
        y, state = module.chunked(*pieces, state=state, chunk=4)
        parts.append(y)
    assert close(torch.cat(parts, 1), whole) and close(state, last)


@RULES
def test_the_matrix_is_the_mixer_on_unit_values(rule):
    module, q, k, v, rest = inputs(rule)
    matrix = module.implicit_matrix(q, k, *rest)
    assert matrix.shape == (BATCH, HEADS, LENGTH, LENGTH)
    assert matrix.triu(1).abs().max() == 0
    unit = torch.eye(LENGTH, dtype=q.dtype)[None, :, None].expand(BATCH, -1, HEADS, -1)
    assert close(module.recurrent(q, k, unit, *rest)[0].transpose(1, 2), matrix)
    assert close(module.chunked(q, k, unit, *rest, chunk=4)[0].transpose(1, 2), matrix)
    assert close(torch.einsum("bhqk,bkhd->bqhd", matrix, v), module.recurrent(q, k, v, *rest)[0])


@RULES
def test_queries_read_the_states(rule):
    module, q, k, v, rest = inputs(rule)
    states = torch.stack(list(module.states(k, v, *rest)), 1)
    y, last = module.recurrent(q, k, v, *rest)
    assert close(module.read(q, states), y) and close(states[:, -1], last)


def written_out(rule: str) -> torch.Tensor:
    """The matrix of a rule, entry by entry, from its definition."""
    module, q, k, _, rest = inputs(rule)
    log_decay, beta = rest
    beta = torch.ones(k.shape[:3], dtype=k.dtype) if beta is None else beta
    matrix = torch.zeros(BATCH, HEADS, LENGTH, LENGTH, dtype=k.dtype)
    for b, h in torch.cartesian_prod(torch.arange(BATCH), torch.arange(HEADS)).tolist():
        for j in range(LENGTH):
            carried = k[b, j, h] * beta[b, j, h]
            for i in range(j, LENGTH):
                if i > j:
                    carried = log_decay[b, i, h].exp() * carried
                    if module is delta:
                        carried = carried - beta[b, i, h] * k[b, i, h] * (k[b, i, h] @ carried)
                matrix[b, h, i, j] = q[b, i, h] @ carried
    return matrix


@pytest.mark.parametrize("rule", ["retention", "mamba2", "gated per channel", "gated delta", "kimi delta"])
def test_the_matrix_is_its_definition(rule):
    module, q, k, _, rest = inputs(rule)
    assert close(module.implicit_matrix(q, k, *rest), written_out(rule))
    if module is delta:
        assert close(delta.matrix_in_chunks(q, k, *rest, chunk=4), written_out(rule))


def test_the_kernel_rows_are_distributions():
    _, q, k, v, _ = inputs("kernel")
    matrix = kernel.implicit_matrix(q, k)
    products = torch.einsum("bqhd,bkhd->bhqk", q, k)
    visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    assert close(matrix, kernel.log_products(q, k).softmax(-1))
    assert close(matrix, products.log().masked_fill(~visible, -math.inf).softmax(-1))
    assert (q > 0).all() and close(
        q, torch.where(inputs("retention")[1] > 0, inputs("retention")[1] + 1, inputs("retention")[1].exp())
    )


def test_delta_rows_are_signed_and_a_full_overwrite_forgets():
    module, q, k, v, (log_decay, beta) = inputs("gated delta")
    matrix = module.implicit_matrix(q, k, log_decay, beta)
    assert 0.2 < (matrix.tril() < 0).sum() / (matrix != 0).sum() < 0.8
    key = k[:, :1].expand_as(k)
    y, _ = module.chunked(key, key, v, 0 * log_decay, torch.ones_like(beta))
    assert close(y, v)


@RULES
def test_invisible_tokens_leave_everything_else_alone(rule):
    module, q, k, v, rest = inputs(rule)
    keep = torch.arange(LENGTH) != 6
    blank = [x if x is None else x * keep.view(1, -1, *[1] * (x.dim() - 2)) for x in (q, k, v, *rest)]
    kept = [x if x is None else x[:, keep] for x in (q, k, v, *rest)]
    y, state = module.chunked(*blank, chunk=4)
    wanted, last = module.recurrent(*kept)
    assert close(y[:, keep], wanted) and close(state, last)
    assert y[:, 6].abs().max() == 0


@RULES
def test_states_are_float32_and_results_keep_their_precision(rule):
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float32, 2e-5)):
        module, q, k, v, rest = inputs(rule, dtype)
        y, state = module.chunked(q, k, v, *rest, chunk=8)
        assert y.dtype == dtype and state.dtype == torch.float32
        exact = module.recurrent(*(x if x is None else x.double() for x in (q, k, v, *rest)))[0]
        assert close(y.double(), exact, tolerance)


@RULES
def test_strong_decays_over_a_long_sequence_stay_exact(rule):
    module, q, k, v, rest = inputs(rule, torch.float32, length=300)
    if rest:
        rest = (20 * rest[0], *rest[1:])
    y, _ = module.chunked(q, k, v, *rest, chunk=300)
    exact = module.recurrent(*(x if x is None else x.double() for x in (q, k, v, *rest)))[0]
    assert y.isfinite().all() and close(y.double(), exact, 1e-5)


@RULES
def test_gradients_of_the_forms_agree(rule):
    module, q, k, v, rest = inputs(rule)
    tensors = [x.clone().requires_grad_() for x in (q, k, v, *rest) if x is not None]
    full = [*tensors, *([None] if None in rest else [])]
    wanted = torch.autograd.grad(module.recurrent(*full)[0].square().sum(), tensors)
    for form in (module.chunked, module.quadratic):
        for got, want in zip(torch.autograd.grad(form(*full)[0].square().sum(), tensors), wanted, strict=True):
            assert close(got, want, 1e-10)


def test_decays_per_head():
    assert torch.allclose(retention_log_decay(4).exp(), torch.tensor([31 / 32, 63 / 64, 127 / 128, 255 / 256]).double())
    slopes = lightning_log_decay(8, 0, 5)
    assert torch.allclose(slopes, -(2.0 ** -torch.arange(1, 9).double()) * (1 + 1e-5))
    assert (lightning_log_decay(8, 4, 5).abs() < 2e-5).all()


def test_a_chunk_holds_at_least_one_token():
    module, q, k, v, rest = inputs("mamba2")
    with pytest.raises(ValueError, match="chunk must be a positive number of tokens, got 0"):
        module.chunked(q, k, v, *rest, chunk=0)


@pytest.mark.parametrize("form", ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"])
def test_gated_delta_equals_hugging_face(form):
    theirs = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    _, q, k, v, (log_decay, beta) = inputs("gated delta", torch.float32)
    before = draw(BATCH, HEADS, D_KEY, D_VALUE, seed=7, dtype=torch.float32)
    wanted, last = getattr(theirs, form)(q, k, v, log_decay[..., 0], beta, initial_state=before, output_final_state=True)
    y, state = delta.chunked(q * D_KEY**-0.5, k, v, log_decay, beta, before, chunk=8)
    assert close(y, wanted, 1e-6) and close(state, last, 1e-6)


@pytest.mark.parametrize("form", ["chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"])
def test_kimi_delta_equals_hugging_face(form):
    theirs = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    _, q, k, v, (log_decay, beta) = inputs("kimi delta", torch.float32)
    before = draw(BATCH, HEADS, D_KEY, D_VALUE, seed=7, dtype=torch.float32)
    wanted, last = getattr(theirs, form)(q, k, v, log_decay, beta, initial_state=before, output_final_state=True)
    y, state = delta.chunked(q * D_KEY**-0.5, k, v, log_decay, beta, before, chunk=8)
    assert close(y, wanted, 1e-6) and close(state, last, 1e-6)


def test_mamba2_equals_hugging_face():
    theirs = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    _, q, k, v, _ = inputs("mamba2", torch.float32)
    dt, rate = draw(BATCH, LENGTH, HEADS, seed=8, dtype=torch.float32), -draw(HEADS, seed=9, dtype=torch.float32).exp()
    before = draw(BATCH, HEADS, D_KEY, D_VALUE, seed=7, dtype=torch.float32)
    wanted, last = theirs.mamba2_chunk_scan(
        v, dt, rate, k, q, chunk_size=8, initial_states=before.mT, dt_softplus=True, return_final_states=True
    )
    step = torch.nn.functional.softplus(dt)
    y, state = gated.chunked(q, k, v, (step * rate)[..., None], step, before, chunk=4)
    assert close(y, wanted, 1e-6) and close(state, last.mT, 1e-6)


def convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The short convolution of one row [pos, channel], term by term."""
    width = weight.shape[1]
    rows = []
    for t in range(len(x)):
        terms = [weight[:, width - 1 - s] * x[t - s] for s in range(width) if t >= s]
        rows.append(bias + torch.stack(terms).sum(0))
    return torch.stack(rows)


def test_the_short_convolution_is_its_definition_also_in_pieces():
    x, weight, bias = draw(2, 9, 3, seed=1), draw(3, 4, seed=2), draw(3, seed=3)
    wanted = torch.stack([convolved(row, weight, bias) for row in x])
    assert close(short_convolution(x, weight, bias)[0], wanted)
    parts, past = [], None
    for piece in x.split([1, 2, 1, 5], 1):
        y, past = short_convolution(piece, weight, bias, past)
        parts.append(y)
    assert close(torch.cat(parts, 1), wanted) and torch.equal(past, x[:, -3:])


@pytest.mark.parametrize("pattern", ["000111111", "111111000", "101101011", "110000011", "111111111"])
def test_the_short_convolution_skips_padding_wherever_it_lies(pattern):
    x, weight, bias, earlier = draw(2, 9, 3, seed=1), draw(3, 4, seed=2), draw(3, seed=3), draw(2, 5, 3, seed=4)
    keep = torch.tensor([character == "1" for character in pattern])
    real = torch.stack((keep, torch.ones_like(keep)))
    y, past = short_convolution(x, weight, bias, earlier[:, -3:], real)
    for row in range(2):
        tokens = torch.cat((earlier[row], x[row][real[row]]))
        assert close(y[row][real[row]], convolved(tokens, weight, bias)[5:])
        assert y[row][~real[row]].abs().sum() == 0
        assert torch.equal(past[row], tokens[-3:])
