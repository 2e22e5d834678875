"""Pairwise ranking of made-up documents by query with group sizes, in the manner of XGBoost's learning to rank demo."""

import sys

import numpy as np
import xgboost as xgb

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
rng = np.random.default_rng(seed)


def make_queries(n_queries):
    """Documents have 12 features; the relevance, 0 to 4, depends on five of them and some noise."""
    features, relevance, sizes = [], [], []
    for _ in range(n_queries):
        size = rng.integers(8, 20)
        query = rng.normal(size=3)
        docs = rng.normal(size=(size, 9))
        x = np.hstack([docs, np.repeat(query[None], size, axis=0)])
        score = (
            docs[:, 0]
            + 0.8 * docs[:, 1] * np.sign(query[0])
            + np.abs(docs[:, 2])
            + 0.5 * docs[:, 3]
        )
        score += 0.4 * rng.normal(size=size)
        features.append(x)
        relevance.append(np.clip(np.round(score + 1.5), 0, 4))
        sizes.append(size)
    return np.vstack(features), np.concatenate(relevance), np.array(sizes)


def to_dmatrix(n_queries):
    x, y, group = make_queries(n_queries)
    matrix = xgb.DMatrix(x, label=y)
    matrix.set_group(group)
    return matrix


train, valid, test = to_dmatrix(400), to_dmatrix(100), to_dmatrix(100)
params = {
    "objective": "rank:pairwise",
    "eval_metric": ["ndcg@5", "ndcg@10"],
    "eta": 0.1,
    "gamma": 1.0,
    "min_child_weight": 0.1,
    "max_depth": 4,
    "lambdarank_num_pair_per_sample": 8,
    "nthread": 1,
    "seed": seed,
}
history = {}
model = xgb.train(
    params,
    train,
    num_boost_round=160,
    evals=[(train, "train"), (valid, "validation")],
    evals_result=history,
    verbose_eval=20,
)
print("test", model.eval(test))
print("validation ndcg@5", history["validation"]["ndcg@5"][-1])
