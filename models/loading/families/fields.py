"""What the fields of other programs' configs may hold: checked once, where a config comes in, so that rules can rely on it."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError


@dataclass(frozen=True)
class FieldKind:
    """What a field must be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]

    def or_null(self) -> FieldKind:
        return FieldKind(f"{self.words} or null", lambda value: value is None or self.fits(value))

    def check(self, field: str, value: Any, where: str, error: type[ValueError] = ConfigError) -> None:
        """Raise `error` where the value is of another kind."""
        if not self.fits(value):
            raise error(f"'{field}' in {where} must be {self.words}, got {reprlib.repr(value)}.")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _token_ids(value: Any) -> bool:
    return value is None or _whole(value) or (isinstance(value, list) and all(map(_whole, value)))


def _number(value: Any) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


def _sizes(value: Any) -> bool:
    return all(map(SIZE.fits, value if isinstance(value, list) else [value]))


def _layer_patterns(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], list) and _whole(pair[1]) for pair in value
    )


WHOLE = FieldKind("a whole number", _whole)
SIZE = FieldKind("a positive whole number", lambda value: _whole(value) and value > 0)
SIZES = FieldKind("a positive whole number, or a list with one for each layer", _sizes)
NUMBER = FieldKind("a number", _number)
NUMBERS = FieldKind("a list of numbers", lambda value: isinstance(value, list) and all(map(_number, value)))
LAYERS = FieldKind("a list of whole numbers", lambda value: isinstance(value, list) and all(map(_whole, value)))
LAYER_PATTERNS = FieldKind("a list of pairs of layer types and how often they come", _layer_patterns)
FLAG = FieldKind("true or false", lambda value: isinstance(value, bool))
TEXT = FieldKind("text", lambda value: isinstance(value, str))
TOKEN_IDS = FieldKind("a token id or a list of them", _token_ids)


def kinds(table: Mapping[FieldKind, str]) -> dict[str, FieldKind]:
    """The kind of each field, from the fields of each kind, which are separated by spaces."""
    return {field: kind for kind, fields in table.items() for field in fields.split()}


FIELD_KINDS = kinds(
    {
        SIZE: (
            "altup_num_inputs block_size conv_kernel d_ff d_kv d_model decoder_attention_heads decoder_ffn_dim decoder_layers "
            "decoder_sparse_step dim encoder_attention_heads encoder_ffn_dim encoder_layers ffn_dim "
            "global_attn_every_n_layers hidden_dim hidden_size index_head_dim index_n_heads index_topk "
            "interleave_moe_layer_step intermediate_size_mlp kv_lora_rank laurel_rank linear_conv_kernel_dim local_attention "
            "max_position_embeddings max_seq_len n_embd n_groups n_head n_heads n_layer n_layers n_positions n_routed_experts "
            "no_rope_layer_interval num_attention_heads num_experts_per_tok num_heads num_hidden_layers num_layers "
            "num_local_experts qk_nope_head_dim qk_rope_head_dim relative_attention_max_distance "
            "relative_attention_num_buckets rotary_dim seq_length state_size v_head_dim vocab_size vocab_size_per_layer_input "
            "window_size"
        ),
        SIZE.or_null(): (
            "_sliding_window_pattern attention_chunk_size decoder_vocab_size ffn_hidden_size global_head_dim head_dim "
            "moe_intermediate_size n_group n_inner num_decoder_layers num_experts num_global_key_value_heads "
            "num_key_value_heads num_kv_heads original_max_position_embeddings q_lora_rank sliding_window_pattern topk_group "
            "word_embed_proj_dim"
        ),
        SIZES.or_null(): "intermediate_size",
        WHOLE: (
            "altup_active_idx hidden_size_per_layer_input index_skip_topk_offset index_topk_freq max_relative_positions "
            "max_window_layers num_kv_shared_layers num_random_blocks position_buckets type_vocab_size"
        ),
        WHOLE.or_null(): (
            "bos_token_id decoder_start_token_id first_k_dense_replace n_shared_experts pad_token_id "
            "shared_expert_intermediate_size sliding_window"
        ),
        NUMBER: (
            "alibi_bias_max attention_multiplier attn_scale embedding_multiplier expansion_ratio floor_scale "
            "global_rope_theta high_freq_factor layer_norm_eps layer_norm_epsilon local_rope_theta logits_scaling "
            "low_freq_factor norm_eps query_pre_attn_scalar residual_multiplier rms_norm_eps rope_local_base_freq "
            "rotary_emb_base rotary_pct routed_scaling_factor swiglu_limit"
        ),
        NUMBER.or_null(): (
            "attention_factor attn_logit_softcapping beta_fast beta_slow factor final_logit_softcapping llama_4_scaling_beta "
            "logit_scale mscale mscale_all_dim partial_rotary_factor rope_theta softmax_scale"
        ),
        LAYERS.or_null(): "mlp_only_layers moe_layers no_rope_layers",
        NUMBERS.or_null(): "activation_sparsity_pattern",
        NUMBERS: "long_factor short_factor",
        FLAG: (
            "_remove_final_layer_norm alibi altup_correct_scale attention_bias attention_k_eq_v bias classifier_bias "
            "decoder_bias do_layer_norm_before enable_bias indexer_rope_interleave legacy mlp_bias multi_query "
            "new_decoder_architecture norm_bias norm_topk_prob parallel_attn position_biased_input qkv_bias "
            "relative_attention rescale_embeddings rope_interleave scale_attn_weights scale_embedding share_att_key "
            "share_encoder_decoder_embeddings talking_head tie_word_embeddings truncate use_bias use_double_wide_mlp "
            "use_parallel_residual use_qk_norm use_qkv_bias use_sliding_window"
        ),
        LAYER_PATTERNS: "attention_types",
        TEXT.or_null(): (
            "activation activation_function attention_type classifier_activation hidden_act hidden_activation norm_rel_ebd "
            "rope_type type"
        ),
        TOKEN_IDS: "eos_token_id",
    }
)
"""By field of config.json, or of a dict of options inside it."""

PARTS = ("rope_parameters", "rope_scaling", "full_attention", "sliding_attention", "attn_config")


def check_fields(config: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError where a field of config.json, or of a dict of options inside it, is of the wrong kind."""
    for field, value in config.items():
        if field in FIELD_KINDS:
            FIELD_KINDS[field].check(field, value, where)
        elif field in PARTS and isinstance(value, dict):
            check_fields(value, f"{field} of {where}")
