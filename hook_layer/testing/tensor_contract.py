"""Contract of hooks, part 1: which tensors are captured, their names, and when."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.captured_values import expected_reductions, expected_statistics
from hook_layer.testing.contract_training import ContractTraining, contract_property
from hook_layer.testing.written_trial import WrittenTrial

__all__ = ["TensorContract"]


class TensorContract(ContractTraining):
    """Tests of which tensors are captured, and when."""

    # which tensors --------------------------------------------------------------------------------

    @contract_property("names")
    def test_tensors_have_their_names_and_collections(self) -> None:
        """Everything is saved under its name, and the collections file lists the members."""
        hook = self.new_hook(save_all=True)
        trial = self.trained(hook, steps=2)
        assert {self.loss_name, *self.names.values(), *self.more_names} <= trial.names(1)
        collections = trial.collections().collections
        for collection, name in self.names.items():
            assert name in collections[collection].tensor_names, collection
        assert self.loss_name in self.trained(self.new_hook(), steps=2).names(1)

    @contract_property("values")
    def test_the_loss_is_that_of_the_training(self) -> None:
        """The saved loss equals the loss in the training."""
        hook = self.new_hook()
        trained = self.train(hook, steps=5)
        hook.close()
        assert len(set(trained.losses)) == 5
        trial = WrittenTrial(hook.trial_uri)
        saved = [trial.values(step)[self.loss_name].item() for step in range(5)]
        assert saved == pytest.approx(trained.losses, rel=1e-6)

    @contract_property("collections")
    def test_a_collection_that_is_included_is_saved_and_no_other(self) -> None:
        """Only included collections, and those that are always saved, are stored."""
        always = set(self.hook_type._defaults.always_saved)  # noqa: SLF001 - of our own
        # Training once per collection would take minutes if the framework compiles each time.
        collections = list(self.names)
        for included in (collections[::2], collections[1::2]):
            trial = self.trained(self.new_hook(include_collections=included), steps=2)
            wanted = {self.names[collection] for collection in included} | {self.loss_name}
            others = {self.names[other] for other in self.names if other not in always}
            assert wanted <= trial.names(1)
            assert not trial.names(1) & (others - wanted), included

    @contract_property("collections")
    def test_a_regular_expression_takes_what_it_finds(self) -> None:
        """Tensors that match `include_regex` are saved, besides those that always are."""
        for name in (self.names[self.array_collection], *self.more_names):
            trial = self.trained(self.new_hook(include_regex=f"^{re.escape(name)}$"), steps=2)
            assert name in trial.names(1)
            others = {*self.names.values(), *self.more_names} - {name}
            always = self.hook_type._defaults.always_saved  # noqa: SLF001 - of our own
            saved = {self.names[collection] for collection in always if collection in self.names}
            assert not trial.names(1) & (others - saved - {self.loss_name}), name

    @contract_property("collections")
    def test_a_collection_of_ones_own_has_a_rhythm_of_its_own(self) -> None:
        """A custom collection follows its own save configuration."""
        hook = self.new_hook(include_collections=["mine"])
        name = (*self.more_names, self.names[self.array_collection])[0]
        mine = hook.get_collection("mine")
        mine.include(f"^{re.escape(name)}$")
        mine.save_config = SaveConfig(save_interval=2)
        trial = self.trained(hook, steps=5)
        found = [step for step in trial.indexes() if name in trial.names(step)]
        assert found == [0, 2, 4]
        assert name in trial.collections().collections["mine"].tensor_names

    @contract_property("reductions")
    def test_reductions_are_those_of_the_value(self) -> None:
        """Each reduction equals numpy's reduction of the stored value."""
        config = ReductionConfig(
            ["min", "max", "mean", "median", "std", "variance", "sum", "prod"],
            ["max", "std"],
            ["l1", "l2"],
            ["l2"],
            save_raw_tensor=True,
        )
        hook = self.new_hook(reduction_config=config, include_collections=[self.array_collection])
        values = self.trained(hook, steps=2).values(1)
        name = self.names[self.array_collection]
        assert values[name].size > 1
        expected = expected_reductions(
            name, values[name], config.requested(), spread_ddof=self.spread_ddof
        )
        for reduction, value in expected.items():
            assert values[reduction] == pytest.approx(value, rel=1e-4, abs=1e-12), reduction

    @contract_property("reductions")
    def test_reductions_may_take_the_place_of_the_value(self) -> None:
        """Without `save_raw_tensor` only reductions and statistics are stored."""
        hook = self.new_hook(
            reduction_config=ReductionConfig(["mean"]), include_collections=[self.array_collection]
        )
        trial, name = self.trained(hook, steps=2), self.names[self.array_collection]
        values = trial.values(1)
        assert name not in values
        mean = trial.statistics(1)[name]["mean"]
        assert values[f"smdebug/reductions/mean/{name}"] == pytest.approx(mean, rel=1e-4, abs=1e-9)

    @contract_property("statistics")
    def test_statistics_in_the_index_are_those_of_the_values(self) -> None:
        """The index describes every tensor: counts, and moments to a relative error of 1e-5."""
        trial = self.trained(self.new_hook(save_all=True), steps=2)
        values, statistics = trial.values(1), trial.statistics(1)
        assert {self.loss_name, *self.names.values(), *self.more_names} <= statistics.keys()
        for name, value in values.items():
            if value.dtype.kind not in "fiub":
                continue
            expected = expected_statistics(value)
            found = {column: statistics[name][column] for column in expected}
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-30, nan_ok=True), name

    # when -----------------------------------------------------------------------------------------

    @contract_property("evaluation")
    def test_training_and_evaluation_count_their_own_steps(self) -> None:
        """Each mode counts its own steps, and an evaluation saves no tensors of training."""
        hook = self.new_hook(save_all=True)
        trial = self.trained(hook, steps=3, evaluations=2)
        found = [(index.mode, index.mode_step) for _, index in sorted(trial.indexes().items())]
        training = [(self.train_mode, step) for step in range(3)]
        assert found == [*training, (ModeKeys.EVAL, 0), (ModeKeys.EVAL, 1)]
        for collection in {"gradients", "optimizer_variables"} & self.names.keys():
            assert self.names[collection] in trial.names(2)
            assert self.names[collection] not in trial.names(3) | trial.names(4)

    @contract_property("save intervals")
    @pytest.mark.parametrize(
        ("config", "saved"),
        [
            ({"save_interval": 3}, [0, 3, 6]),
            ({"save_interval": 1, "start_step": 2, "end_step": 5}, [2, 3, 4]),
            ({"save_interval": 1, "start_step": 100, "save_steps": [1, 4]}, [1, 4]),
        ],
        ids=["save_interval", "start_step, end_step", "save_steps"],
    )
    def test_steps_are_saved_when_they_are_due(
        self, config: dict[str, Any], saved: list[int]
    ) -> None:
        """Steps are saved when the configuration says, and keep their numbers."""
        trial = self.trained(self.new_hook(save_config=SaveConfig(**config)), steps=8)
        indexes = trial.indexes()
        assert sorted(indexes) == saved
        assert all(index.mode is self.train_mode for index in indexes.values())
        assert all(index.mode_step in {None, step} for step, index in indexes.items())

    @contract_property("save intervals")
    def test_each_mode_may_have_its_own_configuration(self) -> None:
        """Steps of a mode are saved according to its own configuration."""
        by_mode = {
            self.train_mode: SaveConfigMode(save_interval=3),
            ModeKeys.EVAL: SaveConfigMode(save_interval=2),
        }
        evaluations = 0 if "evaluation" in self.missing else 3
        hook = self.new_hook(save_config=SaveConfig(by_mode))
        trial = self.trained(hook, steps=5, evaluations=evaluations)
        assert sorted(trial.indexes()) == [0, 3, 5, 7][: 4 if evaluations else 2]

    @contract_property("nothing in other steps")
    def test_nothing_is_computed_in_a_step_in_which_nothing_is_due(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is copied or computed in steps that are not saved."""
        config = SaveConfig(save_interval=1, start_step=100, save_steps=[2, 4])
        hook = self.new_hook(save_all=True, save_config=config)
        steps = self.spy(hook, monkeypatch)
        evaluations = 0 if "evaluation" in self.missing else 2
        self.trained(hook, steps=6, evaluations=evaluations)
        assert set(steps) == {2, 4}

    @contract_property("save_scalar")
    def test_a_scalar_of_the_script_is_saved(self) -> None:
        """A value that a script saves is part of that step, or of the next one if it is late."""
        hook = self.new_hook()
        trial = self.trained(hook, steps=5, on_step=lambda step: hook.save_scalar("rate", step))
        saved = {
            step: trial.values(step)["scalar/rate"].item()
            for step in trial.indexes()
            if "scalar/rate" in trial.names(step)
        }
        assert len(saved) >= 4
        assert sorted(set(saved.values())) == list(saved.values())
        assert list(saved.values())[-1] == 4
        assert all(step - value in {0, 1} for step, value in saved.items())
