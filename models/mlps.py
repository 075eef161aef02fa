"""Every MLP, by the name that `cfg.mlp` gives it."""

from __future__ import annotations

from torch import nn

from .experts import Experts
from .mlp import MLP, GatedMLP
from .sparse_mlp import SparseGatedMLP

MLPS: dict[str, type[nn.Module]] = {"plain": MLP, "gated": GatedMLP, "sparse_gated": SparseGatedMLP, "experts": Experts}
"""Modules, made as mlp(cfg_of_the_layer), from [batch, pos, d_model] to the same."""
