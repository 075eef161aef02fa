"""Every mixer, by the name that `cfg.mixer` gives it.

A mixer is a module, made as mixer(cfg_of_the_layer, layer), that carries information between positions:
forward(q_input, k_input, v_input, context, cache) returns what the layer writes, [batch, pos, d_model]. It has

    readers        its inputs that can be split by head, as {"q": heads, "k": kv_heads, "v": kv_heads}; {} where all of it reads
                   one input, behind `hook_mixer_in`
    linear_reads   whether `hook_q`, `hook_k` and `hook_v` are its inputs times W_Q, W_K and W_V, plus a bias, and all that it
                   takes from them, its out steps apart
    signed_pattern whether its pattern has negative weights, so that it is no distribution
    cache          where it keeps what later tokens need (`cache.extend`, `cache.set_state`); one that keeps nothing there decodes
                   wrongly with a cache
    hook_z, W_O, b_O   with the sum over heads of z W_O, plus b_O, being what it writes
"""

from __future__ import annotations

from torch import nn

from .attention import Attention
from .differential import DifferentialAttention
from .disentangled import DisentangledAttention, TalkingDisentangledAttention
from .indexed import IndexedLatentAttention
from .kv_sharing import KVReader, KVStore
from .latent import LatentAttention
from .linear_delta import GatedDelta, KimiDelta
from .linear_gated import Mamba2, Retention
from .linear_kernel import LinearAttention
from .longformer import LongformerAttention
from .native_sparse import NativeSparseAttention
from .selected import BlockMixture
from .talking_heads import TalkingHeads

MIXERS: dict[str, type[nn.Module]] = {
    "attention": Attention,
    "kv_store": KVStore,
    "kv_reader": KVReader,
    "differential": DifferentialAttention,
    "talking_heads": TalkingHeads,
    "latent": LatentAttention,
    "indexed_latent": IndexedLatentAttention,
    "block_mixture": BlockMixture,
    "native_sparse": NativeSparseAttention,
    "disentangled": DisentangledAttention,
    "talking_disentangled": TalkingDisentangledAttention,
    "longformer": LongformerAttention,
    "linear": LinearAttention,
    "retention": Retention,
    "mamba2": Mamba2,
    "gated_delta": GatedDelta,
    "kimi_delta": KimiDelta,
}
