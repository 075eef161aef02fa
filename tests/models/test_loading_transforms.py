"""Taking fused weights apart: each way of storing query, key and value rows together, and of gate and up rows."""

from __future__ import annotations

import pytest
import torch

from models import TransformerConfig
from models.loading.transforms import TRANSFORMS


def sizes(n_kv_heads: int) -> TransformerConfig:
    return TransformerConfig(n_layers=1, d_model=5, n_heads=6, n_kv_heads=n_kv_heads, d_head=2, d_vocab=7, n_ctx=8, d_mlp=3)


def parts(cfg: TransformerConfig, width: int | None) -> dict[str, torch.Tensor]:
    """Query, key and value rows whose entries say which head and dimension they belong to; a bias where there is no width."""
    rows = {"q": cfg.n_heads, "k": cfg.n_kv_heads, "v": cfg.n_kv_heads}
    columns = () if width is None else (width,)
    return {name: torch.randn(heads, cfg.d_head, *columns) for name, heads in rows.items()}


def unfused(kind: str, fused: torch.Tensor, whole: dict[str, torch.Tensor], cfg: TransformerConfig) -> None:
    for name, rows in whole.items():
        transform = TRANSFORMS[f"{kind}_{name}"]
        assert transform.source_shape(tuple(rows.flatten(0, 1).shape), cfg) == tuple(fused.shape)
        assert torch.equal(transform.apply(fused, cfg), rows.flatten(0, 1))


@pytest.mark.parametrize("width", [5, None], ids=["weight", "bias"])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
def test_rows_by_group(n_kv_heads: int, width: int | None) -> None:
    """The queries of each group, then its key, then its value."""
    cfg = sizes(n_kv_heads)
    whole = parts(cfg, width)
    group = cfg.n_heads // n_kv_heads
    by_group = [
        torch.cat((whole["q"][kv * group : (kv + 1) * group], whole["k"][kv : kv + 1], whole["v"][kv : kv + 1]))
        for kv in range(n_kv_heads)
    ]
    unfused("heads", torch.cat(by_group).flatten(0, 1), whole, cfg)


@pytest.mark.parametrize("width", [5, None], ids=["weight", "bias"])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
def test_rows_one_kind_after_another(n_kv_heads: int, width: int | None) -> None:
    cfg = sizes(n_kv_heads)
    whole = parts(cfg, width)
    unfused("stacked", torch.cat([rows.flatten(0, 1) for rows in whole.values()]), whole, cfg)


def test_halves() -> None:
    cfg = sizes(6)
    gate, up = torch.randn(3, 5), torch.randn(3, 5)
    for name, rows in (("first_half", gate), ("second_half", up)):
        assert TRANSFORMS[name].source_shape((3, 5), cfg) == (6, 5)
        assert torch.equal(TRANSFORMS[name].apply(torch.cat((gate, up)), cfg), rows)
