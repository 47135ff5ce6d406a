"""Describes columns by numbers that can be compared between columns, from the training rows alone.

Shapes: `C` columns, `A` attributes.
"""

import numpy as np
from numpy.typing import NDArray

from data_prep.search.features import ColumnFeatures
from data_prep.search.sampled_rows import SampledRows

_SHARES = (0.01, 0.25, 0.5, 0.75, 0.99)


def describe_columns(features: ColumnFeatures, rows: SampledRows) -> NDArray[np.float32]:
    """Attributes of each column, `[C, A]`: each with mean 0 and deviation 1 over the columns, 0 where all are alike.

    They are quantiles, mean, deviation, skewness and kurtosis, the shares of missing, negative and zero numbers, how
    many distinct numbers there are, and the correlation with the label. Values that may be large enter as logarithms.
    """
    labels = rows.labels[: rows.train]
    described = []
    for number, column in enumerate(features.columns):
        given = rows.numbers[rows.columns.index(column)][: rows.train]
        there = given.is_valid().to_numpy(zero_copy_only=False)
        described.append(_attributes(features.present(number), labels[there], 1 - float(there.mean())))
    found = np.array(described, np.float64).reshape(len(described), -1)
    spread = found.std(axis=0)
    scaled: NDArray[np.float64] = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return scaled.astype(np.float32)


def _attributes(numbers: NDArray[np.float64], labels: NDArray[np.float32], missing: float) -> list[float]:
    mean, deviation = float(numbers.mean()), float(numbers.std()) or 1.0
    standard = (numbers - mean) / deviation
    label_deviation = float(labels.std()) or 1.0
    correlation = float((standard * (labels - labels.mean())).mean()) / label_deviation
    large = [*np.quantile(numbers, _SHARES), mean, deviation, (standard**3).mean(), (standard**4).mean()]
    return [
        *(float(np.arcsinh(number)) for number in large),
        missing,
        float((numbers < 0).mean()),
        float((numbers == 0).mean()),
        float(np.log(len(np.unique(numbers)))),
        correlation,
    ]
