"""Keys and values that several layers use: one layer makes and keeps them, later ones have queries only.

Brandon et al. 2024 (cross-layer attention, arXiv 2405.12981); in Gemma 3n and Gemma 4 the last layers use those of the last layer
of their kind before them. `hook_k` and `hook_v` are on the layer that makes them, and a patch there reaches every user.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..cache import KVCache
from ..config import TransformerConfig
from ..errors import InputError
from .attention import Attention, Inputs
from .context import AttentionContext
from .projection import project
from .qk_steps import QK_STEPS


class KVStore(Attention):
    """Attention that also hands its keys (after their steps) and values on to the later layers that name it."""

    def remember(self, k: Tensor, v: Tensor, context: AttentionContext, cache: KVCache | None) -> tuple[Tensor, Tensor]:
        k, v = super().remember(k, v, context, cache)
        context.shared["kv", self.layer] = (k, v)
        return k, v


class KVReader(Attention):
    """Attention with the keys and values of layer `cfg.kv_from`; of its own it has queries and output weights."""

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        # The steps make keys ready too, of which there are none here.
        self.k_norm = nn.Identity()
        del self.hook_k, self.hook_v
        if cfg.qk_steps:
            del self.hook_rot_k

    def _make_projections(self) -> None:
        cfg = self.cfg
        self.q = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.o = nn.Linear(cfg.n_heads * cfg.d_value, cfg.d_model, bias=cfg.out_bias)

    @property
    def readers(self) -> dict[str, int]:
        return {"q": self.cfg.n_heads}

    def project(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext
    ) -> tuple[Tensor, Tensor, Tensor]:
        kept = context.shared.get(("kv", self.cfg.kv_from))
        if kept is None:
            raise InputError(
                f"layer {self.layer} uses the keys and values of layer {self.cfg.kv_from}, which this call skips: start_at_layer "
                f"must be at most {self.cfg.kv_from}."
            )
        return self.hook_q(project(q_input, self.q, self.cfg.n_heads)), *kept

    def prepare(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        no_keys = q[:, :, :0]
        for name in self.cfg.qk_steps:
            q, _ = QK_STEPS[name](self, q, no_keys, context)
        return (self.hook_rot_q(q) if self.cfg.qk_steps else q), k

    def remember(self, k: Tensor, v: Tensor, context: AttentionContext, cache: KVCache | None) -> tuple[Tensor, Tensor]:
        return k, v
