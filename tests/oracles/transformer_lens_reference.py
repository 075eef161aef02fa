"""The classic TransformerLens HookedTransformer's forward pass, written out from its equations over its own state dict.

Its outputs were compared once with TransformerLens 2.16.1 itself, for every option below, to 1e-6 of the largest logit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

DEFAULTS: dict[str, Any] = {
    "eps": 1e-5,
    "normalization_type": "LN",
    "positional_embedding_type": "standard",
    "attention_dir": "causal",
    "use_attn_scale": True,
    "attn_scale": -1.0,
    "rotary_base": 10_000,
}
ACTIVATIONS = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_fast": lambda x: 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
}

State = dict[str, Tensor]
Config = dict[str, Any]


def logits(state: State, config: Config, tokens: Tensor) -> Tensor:
    """Logits [batch, pos, d_vocab_out] of unpadded tokens [batch, pos]."""
    config = {**DEFAULTS, **config}
    x = state["embed.W_E"][tokens]
    if config["positional_embedding_type"] == "standard":
        x = x + state["pos_embed.W_pos"][: tokens.shape[1]]
    for layer in range(config["n_layers"]):
        x = block(state, config, x, layer)
    out = norm(state, config, x, "ln_final") @ state["unembed.W_U"] + state["unembed.b_U"]
    cap = config.get("output_logits_soft_cap", -1.0)
    return cap * torch.tanh(out / cap) if cap > 0 else out


def block(state: State, config: Config, x: Tensor, layer: int) -> Tensor:
    name = f"blocks.{layer}."
    sandwich = config.get("use_normalization_before_and_after")
    attention_out = attention(state, config, norm(state, config, x, name + "ln1"), layer)
    if sandwich:
        attention_out = norm(state, config, attention_out, name + "ln1_post")
    if config.get("attn_only"):
        return x + attention_out
    mid = x if config.get("parallel_attn_mlp") else x + attention_out
    mlp_out = mlp(state, config, norm(state, config, mid, name + "ln2"), name + "mlp.")
    if sandwich:
        mlp_out = norm(state, config, mlp_out, name + "ln2_post")
    return x + attention_out + mlp_out


def norm(state: State, config: Config, x: Tensor, name: str) -> Tensor:
    """LN and RMS have gains; their Pre forms have none, except after a sublayer."""
    kind = config["normalization_type"]
    if kind is None:
        return x
    if kind.startswith("LN"):
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.pow(2).mean(-1, keepdim=True) + config["eps"]).sqrt()
    if kind.endswith("Pre") and not name.endswith("_post"):
        return x
    return x * state[name + ".w"] + state.get(name + ".b", torch.zeros(()))


def mlp(state: State, config: Config, x: Tensor, name: str) -> Tensor:
    act, w_in, b_in = ACTIVATIONS[config["act_fn"]], state[name + "W_in"], state[name + "b_in"]
    post = act(x @ state[name + "W_gate"]) * (x @ w_in) + b_in if config.get("gated_mlp") else act(x @ w_in + b_in)
    return post @ state[name + "W_out"] + state[name + "b_out"]


def attention(state: State, config: Config, x: Tensor, layer: int) -> Tensor:
    name = f"blocks.{layer}.attn."
    q, k, v = (projected(state, x, name, letter) for letter in "QKV")
    if config.get("use_qk_norm"):
        q, k = (
            t / (t.pow(2).mean(-1, keepdim=True) + config["eps"]).sqrt() * state[name + f"{n}_norm.w"]
            for n, t in (("q", q), ("k", k))
        )
    if config["positional_embedding_type"] == "rotary":
        q, k = rotated(q, config), rotated(k, config)
    repeats = config["n_heads"] // k.shape[2]
    k, v = k.repeat_interleave(repeats, 2), v.repeat_interleave(repeats, 2)
    divisor = (
        (math.sqrt(config["d_head"]) if config["attn_scale"] == -1.0 else config["attn_scale"])
        if config["use_attn_scale"]
        else 1.0
    )
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / divisor
    cap = config.get("attn_scores_soft_cap", -1.0)
    scores = cap * torch.tanh(scores / cap) if cap > 0 else scores
    if config["attention_dir"] == "causal":
        scores = scores.masked_fill(~visible(config, x.shape[1], layer), -math.inf)
    z = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    return torch.einsum("bqhd,hdm->bqm", z, state[name + "W_O"]) + state[name + "b_O"]


def projected(state: State, x: Tensor, name: str, letter: str) -> Tensor:
    under = "_" if f"{name}_W_{letter}" in state else ""
    return torch.einsum("bpm,hmd->bphd", x, state[f"{name}{under}W_{letter}"]) + state[f"{name}{under}b_{letter}"]


def visible(config: Config, length: int, layer: int) -> Tensor:
    """[query, key]: causal, and in local layers at most window_size keys back, the query's own included."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    local = config.get("use_local_attn") and config["attn_types"][layer] == "local"
    return (distance >= 0) & (distance < config["window_size"]) if local else distance >= 0


def rotated(x: Tensor, config: Config) -> Tensor:
    """Each pair of dimensions as a complex number, turned; pairs are adjacent, or half a rotary width apart."""
    dim = config.get("rotary_dim") or config["d_head"]
    frequencies = float(config["rotary_base"]) ** -(torch.arange(dim // 2, dtype=torch.float64) * 2 / dim)
    if config.get("use_NTK_by_parts_rope"):
        frequencies = by_parts(frequencies, config)
    turn = torch.polar(torch.ones(()).double(), torch.arange(x.shape[1]).double()[:, None] * frequencies)[:, None].to(
        torch.complex64
    )
    if config.get("rotary_adjacent_pairs"):
        turned = torch.view_as_real(torch.complex(x[..., 0:dim:2], x[..., 1:dim:2]) * turn).flatten(-2)
    else:
        product = torch.complex(x[..., : dim // 2], x[..., dim // 2 : dim]) * turn
        turned = torch.cat((product.real, product.imag), -1)
    return torch.cat((turned, x[..., dim:]), -1)


def by_parts(frequencies: Tensor, config: Config) -> Tensor:
    """Llama 3.1's rule: slow frequencies are divided by the factor, fast ones kept, those between blended."""
    low, high = config.get("NTK_by_parts_low_freq_factor", 1.0), config.get("NTK_by_parts_high_freq_factor", 4.0)
    factor, original = config.get("NTK_by_parts_factor", 8.0), config.get("NTK_original_ctx_len", 8192)
    out = []
    for frequency in frequencies.tolist():
        turns = original * frequency / (2 * math.pi)
        kept = 1.0 if turns > high else 0.0 if turns < low else (turns - low) / (high - low)
        out.append(kept * frequency + (1 - kept) * frequency / factor)
    return torch.tensor(out, dtype=torch.float64)


def random_state(config: Config, seed: int = 0) -> State:
    """A random state dict with the classic names, biases and gains included, and its buffers, which carry no weights."""
    config = {**DEFAULTS, **config}
    generator = torch.Generator().manual_seed(seed)
    heads, d, h = config["n_heads"], config["d_model"], config["d_head"]
    kv, under = (config["n_key_value_heads"], "_") if config.get("n_key_value_heads") else (heads, "")
    out, m = config.get("d_vocab_out", config["d_vocab"]), config.get("d_mlp")
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config["d_vocab"], d), "unembed.W_U": (d, out), "unembed.b_U": (out,)}
    if config["positional_embedding_type"] == "standard":
        shapes["pos_embed.W_pos"] = (config["n_ctx"], d)
    norms = ["ln_final"]
    for layer in range(config["n_layers"]):
        a, f = f"blocks.{layer}.attn.", f"blocks.{layer}.mlp."
        shapes |= {a + "W_Q": (heads, d, h), a + "b_Q": (heads, h), a + "W_O": (heads, h, d), a + "b_O": (d,)}
        for letter in "KV":
            shapes |= {f"{a}{under}W_{letter}": (kv, d, h), f"{a}{under}b_{letter}": (kv, h)}
        if config.get("use_qk_norm"):
            shapes |= {a + "q_norm.w": (h,), a + "k_norm.w": (h,)}
        if not config.get("attn_only"):
            shapes |= {f + "W_in": (d, m), f + "b_in": (m,), f + "W_out": (m, d), f + "b_out": (d,)}
            shapes |= {f + "W_gate": (d, m)} if config.get("gated_mlp") else {}
        norms += [f"blocks.{layer}.{ln}" for ln in (["ln1"] if config.get("attn_only") else ["ln1", "ln2"])]
    shapes |= _norm_shapes(config, norms)
    state = {name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 0.5) for name, shape in shapes.items()}
    buffers = {
        f"blocks.{layer}.attn.{name}": torch.tensor(-math.inf)
        for layer in range(config["n_layers"])
        for name in ("mask", "IGNORE")
    }
    return {**state, **buffers}


def _norm_shapes(config: Config, norms: list[str]) -> dict[str, tuple[int, ...]]:
    kind, d = config["normalization_type"], config["d_model"]
    with_gain = [] if kind is None or kind.endswith("Pre") else list(norms)
    if config.get("use_normalization_before_and_after"):
        with_gain += [name + "_post" for name in norms if name.endswith(("ln1", "ln2"))]
    letters = "wb" if kind and kind.startswith("LN") else "w"
    return {f"{name}.{letter}": (d,) for name in with_gain for letter in letters}
