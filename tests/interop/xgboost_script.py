"""Boost trees of the data in DATA with a hook that writes to PATH, four times.

    python xgboost_script.py smdebug.xgboost|hook_layer.xgboost DATA PATH

DATA is a numpy file with `features` and `labels`. A script of the original moves to ours by
changing the module's name, and nothing else.
"""

import importlib
import sys

import numpy as np
import xgboost

COLLECTIONS = [
    "hyperparameters",
    "metrics",
    "losses",
    "predictions",
    "labels",
    "feature_importance",
    "average_shap",
    "full_shap",
    "trees",
]
PARAMETERS = {
    "nthread": 1,
    "max_depth": 3,
    "eta": 0.3,
    "subsample": 0.8,
    "seed": 7,
    "objective": "reg:squarederror",
}


def main(module: str, data_file: str, path: str) -> None:
    smd = importlib.import_module(module)
    with np.load(data_file) as data:
        features, labels, names = data["features"], data["labels"], data["names"].tolist()
    train = xgboost.DMatrix(features[:300], labels[:300], feature_names=names)
    test = xgboost.DMatrix(features[300:], labels[300:], feature_names=names)
    hook = smd.Hook(
        f"{path}/chosen",
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=COLLECTIONS,
        hyperparameters=PARAMETERS,
        train_data=train,
        validation_data=test,
    )
    boost(hook, PARAMETERS, train, test)

    hook = smd.Hook(f"{path}/everything", save_all=True, train_data=test, validation_data=test)
    hook.set_mode(smd.modes.TRAIN)
    classes = {**PARAMETERS, "objective": "binary:logistic", "eval_metric": ["auc", "logloss"]}
    train.set_label(labels[:300] > np.median(labels))
    test.set_label(labels[300:] > np.median(labels))
    boost(hook, classes, train, test)

    hook = smd.Hook(f"{path}/unasked")
    boost(hook, PARAMETERS, train, test)

    hook = smd.Hook(f"{path}/late")
    xgboost.train(PARAMETERS, train, 12, evals=[(test, "test")], callbacks=[hook])
    hook.save_scalar("score", 0.25)
    hook.close()


def boost(hook, parameters, train, test):  # noqa: ANN001, ANN201 - of either module
    evals = [(train, "train"), (test, "validation")]
    xgboost.train(parameters, train, 12, evals=evals, callbacks=[hook], verbose_eval=False)
    hook.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
