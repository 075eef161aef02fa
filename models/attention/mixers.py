"""Every mixer, by the name that `cfg.mixer` gives it.

A mixer is a module, made as mixer(cfg_of_the_layer, layer), that carries information between positions:
forward(q_input, k_input, v_input, context, cache) returns what the layer writes, [batch, pos, d_model]. It has

    readers        its inputs that can be split by head, as {"q": heads, "k": kv_heads, "v": kv_heads}; {} where all of it reads
                   one input, behind `hook_mixer_in`
    linear_reads   whether `hook_q`, `hook_k` and `hook_v` are its inputs times W_Q, W_K and W_V, plus a bias
    signed_pattern whether its pattern has negative weights, so that it is no distribution
    hook_z, W_O, b_O   with the sum over heads of z W_O, plus b_O, being what it writes
"""

from __future__ import annotations

from torch import nn

from .attention import Attention

MIXERS: dict[str, type[nn.Module]] = {"attention": Attention}
