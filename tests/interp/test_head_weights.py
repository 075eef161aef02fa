"""Copying and composition from weights, against vocabulary-sized and dense products and models whose circuits are known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from interp.errors import WeightsError
from interp.heads import composition_scores, copying_scores
from interp.heads import weights as W
from interp.heads.composition import CompositionScores, composition, random_composition
from models import HookedTransformer, TransformerConfig
from models.zoo.handbuilt import induction_model, pointer_model, single_head_model


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heads_of(d_model: int, d_head: int, n: int = 2, seed: int = 0) -> W.HeadWeights:
    a, b, c, d = gaussian(4, n, d_model, d_head, seed=seed)
    return W.HeadWeights(a, b, c, d.transpose(1, 2))


def random_model(seed: int = 0, **changes) -> HookedTransformer:
    sizes = {"n_layers": 2, "d_model": 24, "n_heads": 4, "d_head": 6, "d_vocab": 50, "n_ctx": 32, "d_mlp": 32}
    model = HookedTransformer(TransformerConfig(**(sizes | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = 1.0 if "ln" in name or "norm" in name else 0.0
            parameter.copy_(gain + torch.randn(parameter.shape, generator=generator) * (0.3 if gain else 0.2))
    return model


def test_eigenvalue_copying_of_known_matrices():
    assert float(W.eigenvalue_copying(torch.eye(5))) == pytest.approx(1)
    assert float(W.eigenvalue_copying(-torch.eye(5))) == pytest.approx(-1)
    assert abs(float(W.eigenvalue_copying(gaussian(200, 200)))) < 0.15
    assert math.isnan(float(W.eigenvalue_copying(torch.zeros(4, 4))))


def test_positive_eigenvalues_do_not_promise_copying():
    matrix = torch.tensor([[-1.0, 3.0], [-2.0, 5.0]])
    assert float(W.eigenvalue_copying(matrix)) == pytest.approx(1)
    assert W.top_k_copying(matrix, torch.tensor([0, 1])) == 0.5
    assert W.top_k_copying(matrix, torch.tensor([0, 1]), k=2) == 1.0


def test_head_sized_product_has_the_eigenvalues_of_the_vocabulary_sized_one():
    heads, W_E, W_U = heads_of(16, 5), gaussian(60, 16, seed=1), gaussian(16, 60, seed=2)
    dense = W.eigenvalue_copying(W_E.double() @ heads.W_V.double() @ heads.W_O.double() @ W_U.double())
    torch.testing.assert_close(W.ov_copying(W_E, heads.W_V, heads.W_O, W_U), dense.float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "block, norm", [("pre", "layer_norm"), ("sandwich", "rms_norm_offset"), ("parallel", "rms_norm"), ("post", "layer_norm")]
)
def test_copying_of_a_model_folds_its_norms(block: str, norm: str):
    """Against E N W_V W_O N' N'' U, with each norm's linear part written as a matrix."""
    model = random_model(block=block, norm=norm, n_kv_heads=2, final_norm=block != "post")
    folded = copying_scores(model)

    def matrix(module) -> torch.Tensor:
        linear = torch.eye(24, dtype=torch.float64) - (1 / 24 if norm == "layer_norm" else 0)
        return linear * module.gain.detach().double()

    for layer, head in ((0, 0), (1, 3)):
        block_, attn = model.blocks[layer], model.blocks[layer].attn
        out = model.W_E.detach().double()
        out = out @ matrix(block_.ln1) if block != "post" else out
        out = out @ attn.W_V[head // 2].detach().double() @ attn.W_O[head].detach().double()
        out = out @ matrix(block_.ln1_post) if block == "sandwich" else out
        out = out @ matrix(model.ln_final) if block != "post" else out
        dense = W.eigenvalue_copying(out @ model.W_U.detach().double())
        assert float(folded[layer, head]) == pytest.approx(float(dense), abs=1e-4)


def test_folded_weights_act_on_the_normed_stream():
    model = random_model(norm="layer_norm", n_kv_heads=2)
    x = gaussian(1, 7, 24, seed=3)
    _, cache = model.run_with_cache(
        torch.arange(7)[None], names=["blocks.1.ln1.*", "blocks.1.attn.hook_k", "blocks.1.hook_resid_pre"]
    )
    x, scale = cache["resid_pre", 1], cache["blocks.1.ln1.hook_scale"]
    bias = model.blocks[1].ln1.bias @ model.blocks[1].attn.W_K
    folded = torch.einsum("bpd,hdk->bphk", x, W.head_weights(model, 1).W_K) / scale[..., None]
    torch.testing.assert_close(folded[:, :, ::2] + bias, cache["k", 1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("ov, copying", [(1.0, 1.0), (-1.0, -1.0), (0.0, math.nan)])
def test_copying_of_handbuilt_heads(ov: float, copying: float):
    scores = copying_scores(induction_model(20, 24, ov=ov))
    assert math.isnan(float(scores[0, 0]))  # it writes where the unembedding does not read
    assert float(scores[1, 0]) == pytest.approx(copying, nan_ok=True)


def test_copying_needs_one_vocabulary():
    assert bool(copying_scores(random_model(d_vocab_out=7)).isnan().all())


def test_ov_logits_of_a_copying_head():
    model = single_head_model("previous", 10, 12)
    logits = W.ov_logits(model, 0, 0, torch.tensor([3, 7]))
    torch.testing.assert_close(logits, 60 * torch.eye(10)[[3, 7]])
    assert W.top_k_copying(logits, torch.tensor([3, 7])) == 1.0


def test_a_model_that_hides_its_weights():
    with pytest.raises(WeightsError, match=r"blocks\[0\].attn.W_O"):
        W.head_weights(SimpleNamespace(cfg=SimpleNamespace(n_layers=1)), 0)
    with pytest.raises(WeightsError, match="W_E and W_U"):
        W.vocabulary_weights(SimpleNamespace())


# Composition -----------------------------------------------------------------------------------------------------------


def dense_composition(early: W.HeadWeights, late: W.HeadWeights, e: int, h: int) -> dict[str, float]:
    OV_e, OV_h = early.W_V[e] @ early.W_O[e], late.W_V[h] @ late.W_O[h]
    QK_h = late.W_Q[h] @ late.W_K[h].T
    return {kind: float((OV_e @ x).norm() / (OV_e.norm() * x.norm())) for kind, x in (("q", QK_h), ("k", QK_h.T), ("v", OV_h))}


@pytest.mark.parametrize("d_model, d_head", [(20, 4), (6, 9)])
def test_composition_equals_the_dense_formula(d_model: int, d_head: int):
    early, late = heads_of(d_model, d_head, 2, seed=1), heads_of(d_model, d_head, 3, seed=2)
    scores = composition(early, late)
    for e in range(2):
        for h in range(3):
            for kind, value in dense_composition(early, late, e, h).items():
                assert float(getattr(scores, kind)[e, h]) == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("rank", [1, 4])
def test_an_aligned_pair_scores_one_over_root_rank(rank: int):
    basis = torch.linalg.qr(gaussian(20, 20)).Q[:, :rank][None]
    aligned = W.HeadWeights(basis, basis, basis, basis.transpose(1, 2))
    scores = composition(aligned, aligned)
    for kind in "qkv":
        assert float(getattr(scores, kind)) == pytest.approx(1 / math.sqrt(rank), abs=1e-5)


def test_orthogonal_heads_do_not_compose():
    basis = torch.linalg.qr(gaussian(20, 20)).Q
    early, late = (W.HeadWeights(b, b, b, b.transpose(1, 2)) for b in (basis[None, :, :4], basis[None, :, 4:8]))
    scores = composition(early, late)
    assert max(float(scores.q), float(scores.k), float(scores.v)) < 1e-6


def test_composition_ignores_scale_and_refuses_zero():
    early, late = heads_of(20, 4, seed=1), heads_of(20, 4, seed=2)
    scaled = W.HeadWeights(*(7.0 * getattr(late, name) for name in ("W_Q", "W_K", "W_V", "W_O")))
    torch.testing.assert_close(composition(early, scaled).k, composition(early, late).k)
    torch.testing.assert_close(composition(scaled, late).v, composition(late, late).v)
    zero = W.HeadWeights(*(0.0 * getattr(late, name) for name in ("W_Q", "W_K", "W_V", "W_O")))
    assert bool(composition(early, zero).q.isnan().all()) and bool(composition(zero, late).q.isnan().all())


def test_random_heads_score_about_one_over_root_width():
    assert random_composition(64, 8) == pytest.approx(1 / 8, rel=0.05)
    assert random_composition(64, 8, seed=1) != random_composition(64, 8, seed=2)


def test_composition_of_grouped_heads_is_that_of_the_expanded_model():
    model = random_model(n_kv_heads=2, norm="rms_norm")
    grouped, expanded = composition_scores(model), composition_scores(model.ungrouped())
    for kind in "qkv":
        torch.testing.assert_close(getattr(grouped, kind), getattr(expanded, kind), equal_nan=True)


def test_the_one_edge_of_each_handbuilt_circuit():
    by_key = composition_scores(induction_model(41, 44))
    assert float(by_key.k[0, 0, 1, 0]) == pytest.approx(1 / math.sqrt(41), abs=1e-5)
    assert float(by_key.q[0, 0, 1, 0]) == float(by_key.v[0, 0, 1, 0]) == 0.0
    assert by_key.top("k", 3) == [("0.0", "1.0", pytest.approx(0.15617, abs=1e-4))]
    by_query = composition_scores(pointer_model(20, 24))
    assert float(by_query.q[0, 0, 1, 0]) == pytest.approx(1 / math.sqrt(24), abs=1e-5)
    assert float(by_query.k[0, 0, 1, 0]) == float(by_query.v[0, 0, 1, 0]) == 0.0


def test_only_earlier_layers_compose(tmp_path):
    scores = composition_scores(random_model())
    assert bool(scores.q[0, :, 1].isfinite().all())
    assert bool(scores.q[1, :, 0].isnan().all()) and bool(scores.q[0, :, 0].isnan().all())
    again = CompositionScores.load(scores.save(tmp_path / "composition.json"))
    torch.testing.assert_close(again.v, scores.v, equal_nan=True, atol=0, rtol=0)
    assert len(scores.to_pandas()) == 64
