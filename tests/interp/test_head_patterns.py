"""Target masks and the mass on them, against hand-written answers and loops."""

from __future__ import annotations

import pytest
import torch

from interp.heads import patterns
from interp.prompts import repeated_tokens


def ids(*tokens: int) -> torch.Tensor:
    return torch.tensor([tokens])


def pairs(mask: torch.Tensor, row: int = 0) -> set[tuple[int, int]]:
    """(query, key) pairs of a mask."""
    return {tuple(pair) for pair in mask[row].nonzero().tolist()}


def one_hot_pattern(choose, length: int) -> torch.Tensor:
    """A head that puts everything on one key per query."""
    pattern = torch.zeros(1, 1, length, length)
    for query in range(length):
        pattern[0, 0, query, choose(query)] = 1.0
    return pattern


def random_pattern(batch: int, heads: int, length: int, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(batch, heads, length, length, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(~torch.ones(length, length, dtype=torch.bool).tril(), -torch.inf).softmax(-1)


def test_targets_of_a_short_text():
    tokens = ids(0, 7, 8, 9, 7, 8)
    assert pairs(patterns.induction_targets(tokens)) == {(4, 2), (5, 3)}
    assert pairs(patterns.duplicate_targets(tokens)) == {(4, 1), (5, 2)}
    assert pairs(patterns.predecessor_targets(tokens)) == {(4, 0), (5, 1)}
    assert pairs(patterns.predecessor_targets(tokens, bos_token_id=0)) == {(5, 1)}
    assert pairs(patterns.previous_targets(tokens)) == {(i, i - 1) for i in range(1, 6)}
    assert pairs(patterns.previous_targets(tokens, bos_token_id=0)) == {(i, i - 1) for i in range(2, 6)}
    assert pairs(patterns.first_targets(tokens)) == {(i, 0) for i in range(1, 6)}
    assert pairs(patterns.current_targets(tokens)) == {(i, i) for i in range(1, 6)}


def test_masks_equal_their_definitions():
    tokens = torch.randint(0, 6, (3, 25), generator=torch.Generator().manual_seed(1))
    masks = patterns.target_masks(tokens)
    for row, x in enumerate(tokens.tolist()):
        triples = [(i, j) for i in range(25) for j in range(i)]
        assert pairs(masks["induction"], row) == {(i, j) for i, j in triples if j > 0 and x[j - 1] == x[i]}
        assert pairs(masks["duplicate_token"], row) == {(i, j) for i, j in triples if x[j] == x[i]}
        assert pairs(masks["predecessor"], row) == {(i, j) for i, j in triples if j + 1 < i and x[j + 1] == x[i]}


def test_previous_token_head():
    """Logits beta [k = i - 1] with beta = 60."""
    tokens = repeated_tokens(50, 10, 1)
    pattern = (
        (60.0 * torch.eye(20).roll(-1, dims=1)).masked_fill(~torch.ones(20, 20, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    )
    scores = {
        name: float(patterns.target_mass(pattern[None, None], mask).mean())
        for name, mask in patterns.target_masks(tokens).items()
    }
    assert scores["previous_token"] == 1.0
    assert scores["duplicate_token"] == scores["induction"] == pytest.approx(0.0, abs=1e-20)


def test_mass_on_several_targets_is_summed():
    """Three earlier occurrences, one third on each of their successors: a perfect head."""
    tokens = repeated_tokens(50, 5, 1, repeats=4)
    targets = patterns.induction_targets(tokens)
    assert targets[0, 16].sum() == 3
    pattern = torch.zeros(1, 1, 20, 20)
    pattern[0, 0] = targets[0] / targets[0].sum(-1, keepdim=True).clamp(min=1)
    assert float(patterns.target_mass(pattern, targets).mean()) == pytest.approx(1.0, abs=1e-6)


def test_no_repeats_no_score():
    tokens = torch.arange(10)[None]
    mass = patterns.target_mass(random_pattern(1, 2, 10), patterns.induction_targets(tokens))
    assert bool(mass.mean().isnan().all()) and bool(mass.baseline().isnan().all())
    assert mass.n_targets().tolist() == [0, 0]


def test_an_adjacent_duplicate_is_no_induction_target():
    assert pairs(patterns.induction_targets(ids(1, 5, 5))) == set()
    assert pairs(patterns.induction_targets(ids(5, 5, 5))) == {(2, 1)}
    assert not bool(patterns.induction_targets(ids(5, 5, 5, 5)).diagonal(dim1=1, dim2=2).any())


def test_bos_is_no_target():
    tokens = ids(0, 4, 0, 4, 7)
    assert pairs(patterns.induction_targets(tokens)) == {(2, 1), (3, 2)}
    assert pairs(patterns.induction_targets(tokens, bos_token_id=0)) == {(2, 1)}


def test_only_rows_with_a_target_count():
    tokens = repeated_tokens(50, 10, 1, bos_token_id=0)
    ideal = one_hot_pattern(lambda i: i - 9 if i > 10 else i, 21)
    assert float(patterns.target_mass(ideal, patterns.induction_targets(tokens, bos_token_id=0)).mean()) == 1.0


def test_a_uniform_head_gets_the_baseline():
    tokens = repeated_tokens(50, 8, 2, bos_token_id=0)
    uniform = torch.ones(2, 1, 17, 17).tril() / torch.arange(1.0, 18)[:, None]
    for mask in patterns.target_masks(tokens, bos_token_id=0).values():
        mass = patterns.target_mass(uniform, mask)
        torch.testing.assert_close(mass.mean(), mass.baseline())
    mass = patterns.target_mass(uniform, patterns.induction_targets(tokens))
    assert float(mass.baseline()) == pytest.approx(sum(1 / (i + 1) for i in range(9, 17)) / 8)


@pytest.mark.parametrize("pad", [(3, 0), (0, 3)])
def test_padding_counts_nowhere(pad: tuple[int, int]):
    """Attention on a padded text, with NaN in the padded rows, scores as on the text alone."""
    tokens, pattern = repeated_tokens(50, 6, 1, bos_token_id=0), random_pattern(1, 2, 13)
    left, right = pad
    padded = torch.nn.functional.pad(tokens, pad, value=int(tokens[0, 4]))
    kept = torch.nn.functional.pad(torch.ones_like(tokens, dtype=torch.bool), pad, value=False)
    bigger = torch.full((1, 2, 16, 16), torch.nan)
    bigger[:, :, left : left + 13] = 0.0
    bigger[:, :, left : left + 13, left : left + 13] = pattern
    visible = torch.ones(16, 16, dtype=torch.bool).tril() & kept[0, :, None] & kept[0, None]
    plain, wide = patterns.target_masks(tokens, bos_token_id=0), patterns.target_masks(padded, kept, 0)
    for name in plain:
        alone = patterns.target_mass(pattern, plain[name])
        among = patterns.target_mass(bigger, wide[name], visible.expand(1, 2, -1, -1))
        torch.testing.assert_close(among.mean(), alone.mean())
        assert among.n_targets().tolist() == alone.n_targets().tolist()


def test_a_target_outside_the_window_is_no_target():
    tokens = repeated_tokens(50, 6, 1)
    window = torch.ones(12, 12, dtype=torch.bool).tril().triu(-3)
    mass = patterns.target_mass(random_pattern(1, 1, 12), patterns.induction_targets(tokens), window[None, None])
    assert mass.n_targets().tolist() == [0]


def test_the_pattern_is_left_alone():
    tokens, pattern = repeated_tokens(50, 6, 2), random_pattern(2, 3, 12)
    before = pattern.clone()
    for mask in patterns.target_masks(tokens).values():
        patterns.target_mass(pattern, mask).mean()
    assert torch.equal(pattern, before)


def test_sink_strength_of_a_uniform_head():
    def strength(length: int) -> float:
        uniform = torch.ones(1, 1, length, length).tril() / torch.arange(1.0, length + 1)[:, None]
        return float(patterns.sink_strength(uniform))

    assert strength(64) == pytest.approx(sum(1 / i for i in range(1, 65)) / 64) == pytest.approx(0.074123, abs=1e-6)
    assert strength(9) > 0.3 > strength(10)


def test_sink_rate_counts_heads():
    pattern = torch.cat([one_hot_pattern(lambda i: 0, 16), one_hot_pattern(lambda i: i, 16)], dim=1)
    assert patterns.sink_rate(pattern) == 0.5
    assert patterns.sink_strength(pattern).tolist() == [[1.0, pytest.approx(1 / 16)]]
