"""The faithfulness curve and the areas under it."""

from __future__ import annotations

import numpy as np
import pytest
from circuit_helpers import random_pairs, tiny_model

from interp.circuits import CircuitError, evaluate, faithfulness_curve, select, trace_circuit
from interp.circuits.curve import FRACTIONS, area, edge_counts


def test_areas_of_known_curves():
    ends = [0.0, 0.001, 0.5, 1.0]
    assert area(ends, [1, 1, 1, 1]) == 1  # CPR of a perfect circuit at every size
    assert area(ends, [abs(1 - value) for value in (1, 1, 1, 1)]) == 0  # and its CMD
    assert area([0, 1], [0, 1]) == 0.5
    assert area([0, 0.25, 1], [0, 2, 1]) == pytest.approx(0.25 + 1.125)


@pytest.mark.parametrize("fractions", [[0.001, 1.0], [0.0, 0.5], [0.0, 0.5, 0.5, 1.0], [0.0]])
def test_an_area_needs_both_ends(fractions):
    with pytest.raises(CircuitError, match="rise from 0 to 1"):
        area(fractions, [1.0] * len(fractions))


def test_edge_counts(unchecked):
    assert edge_counts([0.1, 0.5, 7, 0, 1.0, 7], 100) == [7, 10, 50]
    assert edge_counts(FRACTIONS, 32_491)[:3] == [32, 65, 162]
    assert edge_counts([np.int64(7)], 100) == [7]
    for bad in (-1, 101, 1.5, True, float("nan"), "7"):
        with pytest.raises(CircuitError, match="edge counts up to 100 or fractions"):
            edge_counts([bad], 100)


def test_curve_points_are_evaluations():
    model, pairs = tiny_model("llama_gqa"), random_pairs(4)
    scores = trace_circuit(model, pairs)
    curve = faithfulness_curve(model, scores, pairs, [10, 0.5])
    half = round(0.5 * scores.graph.n_edges)
    assert [point.n_edges for point in curve.points] == [0, 10, half, scores.graph.n_edges]
    assert curve.points[0].faithfulness == 0 and curve.points[-1].faithfulness == 1
    assert curve.points[1].faithfulness == pytest.approx(evaluate(model, select(scores, top=10), pairs).faithfulness)
    values = [point.faithfulness for point in curve.points]
    fractions = [point.fraction for point in curve.points]
    assert curve.cpr == pytest.approx(area(fractions, values))
    assert curve.cmd == pytest.approx(area(fractions, [abs(1 - value) for value in values]))
    assert curve.size_for(1.0) in {point.n_edges for point in curve.points} and curve.size_for(1e9) is None
    assert list(curve.to_pandas().columns) == ["n_edges", "fraction", "metric", "faithfulness"]
    assert curve.ranking == "top by magnitude" and curve.ablation == "patching"
    assert repr(curve).startswith("FaithfulnessCurve(logit_diff, patching ablation, top by magnitude, 4 points, 4 pairs, CPR")


def test_a_greedy_signed_curve():
    model, pairs = tiny_model("gpt2"), random_pairs(3)
    scores = trace_circuit(model, pairs)
    curve = faithfulness_curve(model, scores, pairs, [15], signed=True, greedy=True, ablation="zero", metric="prob_diff")
    wanted = evaluate(model, select(scores, greedy=15, signed=True), pairs, metric="prob_diff", ablation="zero")
    assert curve.points[1].faithfulness == pytest.approx(wanted.faithfulness)
    assert curve.ranking == "greedy by benefit"
