"""Head scores of a trained language model, and of the same weights inside another library."""

from __future__ import annotations

import pytest
import torch

from interp.heads import HeadScores, head_scores
from interp.heads.causal import ablation_hooks
from interp.heads.measure import half_losses
from interp.heads.scores_result import COLUMNS
from interp.heads.sequences import repeated_sequences
from interp.protocol import HookedModel, bos_token_id, special_token_ids


@pytest.fixture(scope="module")
def smollm2_scores(smollm2) -> HeadScores:
    return head_scores(smollm2, distances=(20, 50), batch=2)


def names(heads) -> list[str]:
    return [head.name for head in heads]


def test_induction_heads_of_smollm2(smollm2_scores: HeadScores):
    best = smollm2_scores.top("induction", 5)
    assert best[0].name == "18.6" and best[0].value == pytest.approx(0.89, abs=0.06)
    assert set(names(best[1:3])) == {"17.3", "17.4"}
    assert {(18, 6), (17, 3), (17, 4), (18, 7), (23, 2)} <= set(smollm2_scores.labelled("induction"))
    assert smollm2_scores.labelled("positional") == smollm2_scores.labelled("anti-induction") == ()


def test_other_heads_of_smollm2(smollm2_scores: HeadScores):
    previous, duplicate = smollm2_scores.top("previous_token", 2), smollm2_scores.top("duplicate_token", 2)
    assert names(previous) == ["16.0", "11.1"] and previous[0].value == pytest.approx(0.89, abs=0.06)
    assert set(names(duplicate)) == {"8.0", "14.3"}
    assert {(16, 0), (11, 1), (2, 1)} <= set(smollm2_scores.labelled("previous-token"))
    assert {(8, 0), (14, 3)} <= set(smollm2_scores.labelled("duplicate-token"))
    assert smollm2_scores.top("first_token", 1)[0].name == "18.8"
    assert smollm2_scores.labels_at(18, 8)[0].name == "first-token"


def test_the_second_time_is_easier(smollm2_scores: HeadScores):
    assert smollm2_scores.loss_first_half > 10 > 4 > smollm2_scores.loss_second_half
    assert smollm2_scores.prepend_bos and smollm2_scores.logits_from == "scores"


def test_copying_through_later_layers_is_found(smollm2_scores: HeadScores):
    """17.3 hardly moves the logits itself; taking it away does."""
    assert float(smollm2_scores.ablation_effect[17, 3]) > 0.3
    assert float(smollm2_scores.copying_effect[17, 3]) < 0.1 < float(smollm2_scores.copying_effect[18, 6])
    assert bool(smollm2_scores.ablation_effect[18].isnan().all())


def test_without_its_previous_token_head_smollm2_forgets_how_to_copy(smollm2):
    batch = repeated_sequences(smollm2, (50,), 2, 0, None).batches[0]

    @torch.no_grad()
    def second_loss(heads) -> float:
        logits = smollm2.run_with_hooks(batch.tokens, fwd_hooks=ablation_hooks(heads))
        return float(half_losses(smollm2, logits, batch)["second"].mean())

    assert second_loss([(16, 0)]) > second_loss([]) + 3 > second_loss([(16, 1)])


# The same weights in TransformerLens -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """A small random Llama in this toolkit and in TransformerLens's bridge."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformer_lens")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens.model_bridge import TransformerBridge

    from models import load_model

    folder = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(
        vocab_size=80, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, initializer_range=0.3, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(80)}, unk_token="w0"))
    special = {"unk_token": "w0", "bos_token": "w1", "eos_token": "w2", "pad_token": "w2"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    return load_model(folder), TransformerBridge.boot_transformers(str(folder), device="cpu")


def test_transformer_lens_fits_the_protocol(twins):
    ours, theirs = twins
    assert isinstance(theirs, HookedModel)
    assert bos_token_id(theirs) == bos_token_id(ours) == 1
    assert special_token_ids(theirs) == special_token_ids(ours) == (1, 2)


@pytest.mark.parametrize("mask", [False, True])
def test_transformer_lens_gets_the_same_scores(twins, mask: bool):
    ours, theirs = twins
    tokens = torch.randint(3, 12, (2, 24), generator=torch.Generator().manual_seed(1))
    arguments = {"tokens": tokens, "attention_mask": torch.arange(24)[None].expand(2, -1) < 20} if mask else {}
    a, b = head_scores(ours, **arguments), head_scores(theirs, **arguments)
    assert a.distance == b.distance and a.logits_from == b.logits_from == "scores"
    for name in COLUMNS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), atol=1e-4, rtol=1e-3, equal_nan=True)
    assert a.loss_second_half == (None if mask else pytest.approx(b.loss_second_half, abs=1e-4))
