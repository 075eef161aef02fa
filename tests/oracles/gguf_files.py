"""GGUF files written from tiny Hugging Face models by llama.cpp's conventions, with the gguf package's name maps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tests.oracles.hf_models import SIZES, Case

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3": gguf.MODEL_ARCH.GEMMA3,
}
QUANTISABLE = {**SIZES, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SIX_LAYERS = {**SIZES, "num_hidden_layers": 7, "sliding_window": 5, "query_pre_attn_scalar": SIZES["head_dim"]}

CASES: dict[str, tuple[str, Case]] = {
    "llama": ("llama", Case("LlamaConfig", SIZES)),
    "llama tied, biases": (
        "llama",
        Case("LlamaConfig", {**SIZES, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    ),
    "llama linear": (
        "llama",
        Case("LlamaConfig", {**SIZES, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}}),
    ),
    "llama yarn": (
        "llama",
        Case(
            "LlamaConfig",
            {
                **SIZES,
                "max_position_embeddings": 128,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "rope_theta": 100.0,
                    "original_max_position_embeddings": 32,
                },
            },
        ),
    ),
    "llama 3.1": (
        "llama",
        Case("LlamaConfig", {**SIZES, "head_dim": 32, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 64}}),
    ),
    "llama 3.1 as published": (
        "llama",
        Case(
            "LlamaConfig",
            {
                **SIZES,
                "head_dim": 16,
                "rope_parameters": {**LLAMA3, "rope_theta": 500_000.0, "original_max_position_embeddings": 8192},
            },
        ),
    ),
    "qwen2": ("qwen2", Case("Qwen2Config", {k: v for k, v in SIZES.items() if k != "head_dim"} | {"hidden_size": 72})),
    "qwen3": ("qwen3", Case("Qwen3Config", SIZES)),
    "qwen3 tied": ("qwen3", Case("Qwen3Config", {**SIZES, "tie_word_embeddings": True})),
    "gemma3": ("gemma3", Case("Gemma3TextConfig", SIX_LAYERS)),
    "gemma3 scaled": (
        "gemma3",
        Case(
            "Gemma3TextConfig",
            {
                **SIX_LAYERS,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                },
            },
        ),
    ),
}


def write_gguf(path: Path, architecture: str, model: Any, quantise: bool = False, **extra: Any) -> None:
    """Write a model's config and weights. quantise: store matrices as Q8_0, and put what that loses into the model itself."""
    writer = gguf.GGUFWriter(path, architecture)
    _add_metadata(writer, architecture, model.config)
    for key, value in extra.items():
        writer.add_string(key, value)
    names = gguf.get_tensor_name_map(ARCHITECTURES[architecture], model.config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        stored = _converted(architecture, name, parameter.detach().numpy(), model.config)
        if quantise and parameter.dim() > 1:
            packed = gguf.quantize(stored, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(_gguf_name(names, name), packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            rounded = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
            parameter.data.copy_(torch.from_numpy(_restored(architecture, name, rounded, model.config)))
        else:
            writer.add_tensor(_gguf_name(names, name), np.ascontiguousarray(stored))
    if model.config.get_text_config().rope_parameters.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(names: Any, name: str) -> str:
    module, kind = name.rsplit(".", 1)
    return f"{names.get_name(module)}.{kind}"


def _add_metadata(writer: Any, architecture: str, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if architecture != "qwen2":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if architecture == "llama":
        writer.add_rope_dimension_count(head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _converted(architecture: str, name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """Llama's query and key rows go from half-split to interleaved rotary order; Gemma's norm gains include their 1."""
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
    return weight + 1 if architecture == "gemma3" and "norm" in name else weight


def _restored(architecture: str, name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
        return pairs.swapaxes(1, 2).reshape(weight.shape)
    return weight


def _llama3_factors(config: Any) -> np.ndarray:
    """What each inverse frequency is divided by, as Llama 3.1's own code decides it by wavelength."""
    rope = config.rope_parameters
    factors = []
    for index in range(config.head_dim // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * index / config.head_dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if turns > high:
            factors.append(1.0)
        elif turns < low:
            factors.append(rope["factor"])
        else:
            smooth = (turns - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)
