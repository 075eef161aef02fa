"""What EAP costs: time and arithmetic beside plain passes, and no tensor that grows with heads times d_model."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import interp.circuits.attribution as attribution
from interp.circuits import trace_circuit
from interp.circuits.metrics import METRICS
from interp.prompts import PromptPairs, ioi_pairs
from models import HookedTransformer, TransformerConfig

SHAPES = {
    "smollm2": {"n_heads": 9, "n_kv_heads": 3, "gated_mlp": True, "norm": "rms_norm", "positions": "rotary", "d_mlp": 1536},
    "gpt2": {"n_heads": 9, "d_mlp": 2304, "qkv_bias": True, "out_bias": True, "mlp_bias": True},
}


def model_and_pairs(shape: str, n: int = 2, length: int = 14) -> tuple[HookedTransformer, PromptPairs]:
    model = HookedTransformer(TransformerConfig(n_layers=12, d_model=576, d_head=64, d_vocab=4096, n_ctx=32, **SHAPES[shape]))
    tokens = torch.randint(0, 4096, (2, n, length), generator=torch.Generator().manual_seed(0))
    answers, mask = torch.tensor([[1], [2]]).repeat(n // 2, 1), torch.ones(n, length, dtype=torch.bool)
    return model, PromptPairs(tokens[0], tokens[1], answers, answers + 5, mask, torch.full((n,), length - 1))


def flops(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("shape", SHAPES)
def test_arithmetic_is_within_three_times_plain_passes(shape):
    model, pairs = model_and_pairs(shape)

    def plain():
        with torch.no_grad():
            model(pairs.clean)

    def forward_and_backward():
        """Towards activations only: the cheaper of the two readings."""
        model.requires_grad_(False)
        start = model(pairs.clean, stop_at_layer=0).requires_grad_()
        METRICS["logit_diff"](model(start, start_at_layer=0)[:, -1], pairs).sum().backward()
        model.requires_grad_(True)

    budget = 3 * (flops(plain) + flops(forward_and_backward))
    assert flops(lambda: trace_circuit(model, pairs)) < 0.75 * budget


def test_eap_on_a_real_model_costs_at_most_three_times_the_plain_passes(smollm2):
    from benchmarks.eap_cost import baselines, measure

    pairs = ioi_pairs(smollm2, 10)
    assert pairs.clean.shape == (10, 14)
    calls = baselines(smollm2, pairs)
    del calls["forward and backward, weights"]
    costs = measure({**calls, "EAP": lambda: trace_circuit(smollm2, pairs)}, repeats=2)
    plain = costs["forward"].processor + costs["forward and backward, activations"].processor
    assert costs["EAP"].processor <= 3 * plain
    assert costs["EAP"].mebibytes < 300  # beside weights of 515 MiB


class Largest(TorchDispatchMode):
    """Largest tensor, in elements, that any operation makes its own memory for."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        out = function(*arguments, **(keywords or {}))
        for tensor in out if isinstance(out, list | tuple) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def test_no_tensor_grows_with_heads_times_d_model_times_all_tokens(monkeypatch):
    model, pairs = model_and_pairs("smollm2", n=4)
    cfg, n_tokens = model.cfg, pairs.clean.numel()
    monkeypatch.setattr(attribution, "BUFFER_BYTES", 8 * len(pairs) * 121 * cfg.d_model * 4)
    with Largest() as largest:
        trace_circuit(model, pairs)
    allowed = max(parameter.numel() for parameter in model.parameters())
    buffer = attribution.BUFFER_BYTES // 4
    assert largest.numel <= max(allowed, buffer, n_tokens * cfg.d_mlp)
    assert largest.numel < n_tokens * cfg.n_layers * cfg.n_heads * cfg.d_model
