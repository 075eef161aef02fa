"""The general mechanism by itself: against loops over heads and keys in float64, with inputs of different objects and widths."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from models import ConfigError, InputError
from models.attention.general import GeneralAttention, kernel_attention
from models.kernels.kernel_functions import KernelWarning


def objects(seed: int = 0, n_query: int = 4, n_key: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs of three different widths in float64; keys and values share their length."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((2, n_query, 7), (2, n_key, 5), (2, n_key, 3))
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)


def general(**options) -> GeneralAttention:
    """Three heads; queries and keys 4 wide, values 6 wide; weights large enough for sharp attention."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = GeneralAttention(7, 5, 3, **{"d_qk": 4, "d_v": 6, "n_heads": 3, "d_out": 10, "bias": True} | options).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3.0)
    return module


def by_hand(module, x_query, x_key, x_value, kappa, visible=lambda query, key: True) -> torch.Tensor:
    """The definition, one entry at a time: outputs of all heads, concatenated, times W_O."""
    heads = []
    for head in range(3):
        part = {name: getattr(module, name) for name in "qkv"}
        rows = {name: slice(head * width, (head + 1) * width) for name, width in (("q", 4), ("k", 4), ("v", 6))}
        q, k, v = (
            x @ part[name].weight[rows[name]].T + part[name].bias[rows[name]]
            for name, x in (("q", x_query), ("k", x_key), ("v", x_value))
        )
        out = torch.zeros(*q.shape[:2], 6, dtype=torch.float64)
        for batch in range(q.shape[0]):
            for i in range(q.shape[1]):
                weights = [
                    kappa(q[batch, i], k[batch, j]) if visible(i, j) else torch.zeros((), dtype=torch.float64)
                    for j in range(k.shape[1])
                ]
                out[batch, i] = sum(weight * v[batch, j] for j, weight in enumerate(weights)) / sum(weights)
        heads.append(out)
    return torch.cat(heads, -1) @ module.o.weight.T + module.o.bias


def elu1(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (F.elu(q) + 1) @ (F.elu(k) + 1)


KAPPAS = {
    "exp": ("exp", lambda q, k: torch.exp(q @ k / math.sqrt(4))),
    "elu1": ("elu1", elu1),
    "function": (lambda x: 1 + x**2, lambda q, k: 1 + (q @ k) ** 2),
}


@pytest.mark.parametrize("kernel", KAPPAS)
def test_cross_attention_between_objects_of_different_widths(kernel: str) -> None:
    given, kappa = KAPPAS[kernel]
    module, inputs = general(kernel=given), objects()
    assert torch.allclose(module(*inputs), by_hand(module, *inputs, kappa), atol=1e-10)


@pytest.mark.parametrize("kernel", KAPPAS)
def test_masked_attention_hides_the_future(kernel: str) -> None:
    given, kappa = KAPPAS[kernel]
    module, inputs = general(kernel=given), objects(n_query=6)
    wanted = by_hand(module, *inputs, kappa, visible=lambda query, key: key <= query)
    assert torch.allclose(module(*inputs, causal=True), wanted, atol=1e-10)
    lower = torch.ones(6, 6).tril().bool()
    assert torch.allclose(module(*inputs, mask=lower), wanted, atol=1e-10)
    assert torch.allclose(module(*inputs, mask=lower.expand(2, 3, 6, 6)), wanted, atol=1e-10)


def test_the_identity_kernel_is_a_ratio_of_inner_products() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.rand(2, 5, 3, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    out = kernel_attention(q, k, v, "identity")
    products = torch.einsum("bihd,bjhd->bhij", q, k)
    assert torch.allclose(out, torch.einsum("bhij,bjhd->bihd", products / products.sum(-1, keepdim=True), v))
    # A linear kernel needs no n x n weights: S = sum_j k_j v_j^T and z = sum_j k_j say it all.
    state, total = torch.einsum("bjhd,bjhe->bhde", k, v), k.sum(1)
    assert torch.allclose(out, torch.einsum("bihd,bhde->bihe", q, state) / torch.einsum("bihd,bhd->bih", q, total)[..., None])


def test_the_exponential_kernel_is_scaled_dot_product_attention() -> None:
    q, k, v = (torch.randn(2, 5, 3, width, generator=torch.Generator().manual_seed(width)) for width in (4, 4, 6))
    wanted = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
    assert torch.allclose(kernel_attention(q, k, v, causal=True), wanted, atol=1e-6)
    assert torch.isfinite(kernel_attention(1e3 * q, k, v)).all()


def test_new_queries_follow_stored_keys() -> None:
    module, x = GeneralAttention(7, d_qk=4, n_heads=2), torch.randn(1, 6, 7)
    whole = module(x, causal=True)
    assert torch.allclose(module(x[:, 4:], x, causal=True), whole[:, 4:], atol=1e-6)
    with pytest.raises(InputError, match="7 queries and 6 keys"):
        module(torch.randn(1, 7, 7), x, causal=True)


def test_hooks_show_and_edit_every_stage() -> None:
    module, inputs = general(), objects()
    out, cache = module.run_with_cache(*inputs)
    shapes = {name: tuple(tensor.shape) for name, tensor in cache.items()}
    assert shapes == {
        "hook_q": (2, 4, 3, 4),
        "hook_k": (2, 6, 3, 4),
        "hook_v": (2, 6, 3, 6),
        "hook_attn_scores": (2, 3, 4, 6),
        "hook_pattern": (2, 3, 4, 6),
        "hook_z": (2, 4, 3, 6),
    }
    assert torch.allclose(cache["hook_attn_scores"].softmax(-1), cache["hook_pattern"])
    for name in shapes:
        edited = module.run_with_hooks(*inputs, fwd_hooks=[(name, lambda tensor, hook: tensor + torch.rand_like(tensor))])
        assert (edited - out).abs().max() > 1e-3, name

    def first_key(pattern, hook):
        pattern[:] = F.one_hot(torch.zeros(4, dtype=torch.long), 6)

    with module.hooks([("hook_pattern", first_key)]):
        _, cache = module.run_with_cache(*inputs)
    assert torch.allclose(cache["hook_z"], cache["hook_v"][:, :1].expand(-1, 4, -1, -1))


def test_without_output_weights_heads_lie_side_by_side() -> None:
    module, inputs = general(d_out=None), objects()
    out, cache = module.run_with_cache(*inputs)
    assert out.shape == (2, 4, 18) and torch.equal(out[..., 6:12], cache["hook_z"][:, :, 1])


def test_rows_that_are_no_average_are_refused_or_reported() -> None:
    with pytest.raises(InputError, match="rows of kernel weights.*on_nonpositive='report'"):
        general(kernel="identity")(*objects())
    module = general(kernel="identity", on_nonpositive="report")
    with pytest.warns(KernelWarning, match="of 24 rows"):
        _, cache = module.run_with_cache(*objects())
    assert torch.allclose(cache["hook_pattern"].sum(-1), torch.ones((), dtype=torch.float64))


def test_inputs_that_do_not_fit_are_named() -> None:
    module, (x_query, x_key, x_value) = general(), objects()
    for inputs, message in (
        ((x_query,), r"x_key must be torch.float64 \[batch, position, 5\] .* of shape \(2, 4, 7\)"),
        ((x_query, x_key), r"x_value must be torch.float64 \[batch, position, 3\]"),
        ((x_query, x_key, x_value[:, :3]), "keys and values their length"),
        ((x_query[:1], x_key, x_value), "share their batch"),
    ):
        with pytest.raises(InputError, match=message):
            module(*inputs)
    for mask in (torch.ones(4, 5).bool(), torch.ones(4, 6), torch.ones(3, 3, 4, 6).bool()):
        with pytest.raises(InputError, match=r"mask must be bool of shape \(4, 6\) or \(2, 3, 4, 6\)"):
            module(x_query, x_key, x_value, mask=mask)
    with pytest.raises(ConfigError, match="n_heads must be a positive whole number, got 0"):
        general(n_heads=0)
    with pytest.raises(ConfigError, match="on_nonpositive must be 'raise' or 'report', got 'ignore'"):
        general(on_nonpositive="ignore")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: GeneralAttention(2.5, d_qk=2), ConfigError, "d_query must be a positive whole number, got 2.5"),
        (lambda: GeneralAttention(2, d_qk=True), ConfigError, "d_qk must be a positive whole number, got True"),
        (lambda: GeneralAttention(2, d_qk=2, d_out=-1), ConfigError, "d_out must be a positive whole number"),
        (lambda: GeneralAttention(2, d_qk=2)(torch.ones(1, 3, 2).long()), InputError, "x_query must be torch.float32"),
        (lambda: GeneralAttention(2, d_qk=2)([[1.0]]), InputError, "got list"),
        (lambda: GeneralAttention(2, d_qk=2)(torch.ones(1, 3, 2), torch.ones(1, 0, 2)), InputError, "at least one position"),
        (lambda: GeneralAttention(2, d_qk=2)(torch.ones(1, 3, 2), mask=[[True]]), InputError, "mask must be a bool tensor"),
    ],
)
def test_mistakes_get_one_sentence(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
