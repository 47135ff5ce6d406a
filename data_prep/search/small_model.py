"""A small model that says how good features are: logistic regression by a fixed number of steps of gradient descent.

It is trained as a network is, by steps of one size, and not to its optimum: numbers that are scaled badly are learned
badly, and a chain is to be judged by that, too.

Shapes: `n` rows, `N` features.
"""

import math

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.evaluation.click_evaluation import measure

STEPS = 100
RATE = 0.1
MOMENTUM = 0.9


def score_features(features: NDArray[np.float32], labels: NDArray[np.float32], train: int, score: str) -> float:
    """How well the model predicts the validation rows; more is better.

    Args:
        features: features of all rows, float32 `[n, N]`.
        labels: labels 0 or 1, float32 `[n]`.
        train: number of rows, the first ones, that train the model; it predicts the others.
        score: `log_loss`, which is returned with a minus sign, or `auc`.

    Returns:
        The score; if the model diverges or is no better, the score of predicting the training rows' mean label.
    """
    click_rate = float(labels[:train].mean())
    bias = math.log(click_rate / (1 - click_rate))
    logits = _logits(features, labels[:train], bias)
    plain = np.full(len(labels) - train, bias, np.float32)
    found = [_score(labels[train:], of_model, score) for of_model in (plain, logits) if np.isfinite(of_model).all()]
    return max(found)


def _logits(features: NDArray[np.float32], labels: NDArray[np.float32], bias: float) -> NDArray[np.float32]:
    """Logits of the other rows, float32, by a model that was trained on the first rows."""
    train = len(labels)
    with np.errstate(all="ignore"):  # a model that diverges is judged by its logits
        known = np.concatenate((features[:train], np.ones((train, 1), np.float32)), axis=1)
        weights = np.zeros(known.shape[1], np.float32)
        weights[-1] = bias
        speed = np.zeros_like(weights)
        for _ in range(STEPS):
            predicted = 1 / (1 + np.exp(-(known @ weights)))
            speed = MOMENTUM * speed - RATE * (known.T @ (predicted - labels)) / train
            weights = weights + speed
        logits: NDArray[np.float32] = (features[train:] @ weights[:-1] + weights[-1]).astype(np.float32)
    return logits


def _score(labels: NDArray[np.float32], logits: NDArray[np.float32], score: str) -> float:
    found = measure(labels, logits)
    return found.auc if score == "auc" else -found.log_loss
