"""What tensors are called in GGUF files: the same for all kinds, but for a few that a kind names itself."""

from __future__ import annotations

from collections.abc import Mapping

from .fill import Weight
from .gguf_header import TensorInfo

MODULES = {
    "embed": "token_embd",
    "embed_norm": "token_embd_norm",
    "pos_embed": "position_embd",
    "token_type_embed": "token_types",
    "blocks.{l}.ln1": "blk.{l}.attn_norm",
    "blocks.{l}.ln1_post": "blk.{l}.post_attention_norm",
    "blocks.{l}.ln2": "blk.{l}.ffn_norm",
    "blocks.{l}.ln2_post": "blk.{l}.post_ffw_norm",
    "blocks.{l}.attn.q": "blk.{l}.attn_q",
    "blocks.{l}.attn.k": "blk.{l}.attn_k",
    "blocks.{l}.attn.v": "blk.{l}.attn_v",
    "blocks.{l}.attn.o": "blk.{l}.attn_output",
    "blocks.{l}.attn.q_norm": "blk.{l}.attn_q_norm",
    "blocks.{l}.attn.k_norm": "blk.{l}.attn_k_norm",
    "blocks.{l}.attn.q_down": "blk.{l}.attn_q_a",
    "blocks.{l}.attn.q_latent_norm": "blk.{l}.attn_q_a_norm",
    "blocks.{l}.attn.q_up": "blk.{l}.attn_q_b|blk.{l}.attn_q",
    "blocks.{l}.attn.kv_down": "blk.{l}.attn_kv_a_mqa",
    "blocks.{l}.attn.kv_latent_norm": "blk.{l}.attn_kv_a_norm",
    "blocks.{l}.attn.kv_up": "blk.{l}.attn_kv_b",
    "blocks.{l}.mlp.gate": "blk.{l}.ffn_gate",
    "blocks.{l}.mlp.up": "blk.{l}.ffn_up",
    "blocks.{l}.mlp.down": "blk.{l}.ffn_down",
    "blocks.{l}.mlp.router": "blk.{l}.ffn_gate_inp",
    "blocks.{l}.mlp.experts.gate": "blk.{l}.ffn_gate.{e}|blk.{l}.ffn_gate_exps",
    "blocks.{l}.mlp.experts.up": "blk.{l}.ffn_up.{e}|blk.{l}.ffn_up_exps",
    "blocks.{l}.mlp.experts.down": "blk.{l}.ffn_down.{e}|blk.{l}.ffn_down_exps",
    "blocks.{l}.mlp.shared.gate": "blk.{l}.ffn_gate_shexp",
    "blocks.{l}.mlp.shared.up": "blk.{l}.ffn_up_shexp",
    "blocks.{l}.mlp.shared.down": "blk.{l}.ffn_down_shexp",
    "blocks.{l}.mlp.shared_gate": "blk.{l}.ffn_gate_inp_shexp",
    "ln_final": "output_norm",
    "unembed": "output",
}
"""Our module -> the file's, each with a weight and perhaps a bias. Of names parted by "|", the one that the file has is meant.

Files older than stacked experts have one tensor for each, "{e}".
"""

LONE = {
    "blocks.{l}.attn.normaliser.sink": "blk.{l}.attn_sinks.weight",
    "blocks.{l}.mlp.router.correction": "blk.{l}.exp_probs_b.bias",
}
"""Parameters that are no module's weight or bias."""

STACK = {
    "embed": "token_embd",
    **{f"blocks.{{l}}.attn.{part}": f"{{stack}}.blk.{{l}}.attn_{part}" for part in "qkvo"},
    "blocks.{l}.ln1": "{stack}.blk.{l}.attn_norm",
    "blocks.{l}.ln2": "{stack}.blk.{l}.ffn_norm",
    **{f"blocks.{{l}}.mlp.{part}": f"{{stack}}.blk.{{l}}.ffn_{part}" for part in ("gate", "up", "down")},
    "ln_final": "{stack}.output_norm",
}
"""The modules of an encoder or a decoder."""

SEQ2SEQ = {
    **{f"{ours}oder.{module}": name.replace("{stack}", ours) for ours in ("enc", "dec") for module, name in STACK.items()},
    **{f"decoder.blocks.{{l}}.cross_attn.{part}": f"dec.blk.{{l}}.cross_attn_{part}" for part in "qkvo"},
    "decoder.blocks.{l}.ln_cross": "dec.blk.{l}.cross_attn_norm",
    "decoder.unembed": "output",
}
SEQ2SEQ_LONE = {
    f"{stack}oder.blocks.{{l}}.attn.terms.t5_bias.table": f"{stack}.blk.{{l}}.attn_rel_b.weight" for stack in ("enc", "dec")
}

FUSED_QKV = "blk.{l}.attn_qkv"
"""A fused weight holds all queries, then all keys, then all values, whatever the checkpoint that it comes from did."""


Tensors = Mapping[str, TensorInfo]


def weight_map(tensors: Tensors, names: Mapping[str, str], transforms: Mapping[str, str]) -> dict[str, Weight]:
    """Where each of our parameters lies in a file with these tensors.

    names: modules, or lone parameters, that this kind calls otherwise than the tables above do.
    transforms: by a part of our parameter's name.
    """
    modules = {**MODULES, **SEQ2SEQ}
    if f"{FUSED_QKV}.weight".replace("{l}", "0") in tensors:
        modules |= {f"blocks.{{l}}.attn.{part}": FUSED_QKV for part in "qkv"}
        transforms = {f".attn.{part}.": f"stacked_{part}" for part in "qkv"} | dict(transforms)
    modules |= {ours: theirs for ours, theirs in names.items() if ours in modules}
    flat = {f"{ours}.{part}": _with_part(theirs, part) for ours, theirs in modules.items() for part in ("weight", "bias")}
    flat |= {**LONE, **SEQ2SEQ_LONE, **{ours: theirs for ours, theirs in names.items() if ours not in modules}}
    shared_gate = tensors.get(f"{modules['blocks.{l}.mlp.shared_gate']}.weight".replace("{l}", "0"))
    if shared_gate is not None and len(shared_gate.shape) == 1:
        transforms = {".shared_gate.": "as_row", **transforms}
    return {ours: Weight(_present(theirs, tensors), _transform(ours, transforms)) for ours, theirs in flat.items()}


def _with_part(choices: str, part: str) -> str:
    return "|".join(f"{name}.{part}" for name in choices.split("|"))


def _present(choices: str, tensors: Tensors) -> str:
    """Of the names parted by "|", the one that the first layer has; the last of all where it has none."""
    listed = choices.split("|")
    return next((name for name in listed if name.replace("{l}", "0").replace("{e}", "0") in tensors), listed[-1])


def _transform(ours: str, transforms: Mapping[str, str]) -> str:
    if ours == "pos_embed.weight":
        return "leading_rows"
    return next((transform for part, transform in transforms.items() if part in ours), "as_is")
