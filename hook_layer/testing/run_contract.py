"""Contract of hooks, part 2: they do not affect training; how runs end; configuration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.format.job_file import new_run_id
from hook_layer.testing.contract_training import (
    EVERY_STEP,
    REASON,
    ContractTraining,
    ScriptError,
    contract_property,
    failing_in,
    new_uri,
)
from hook_layer.testing.written_trial import WrittenTrial

__all__ = ["RunContract"]


class RunContract(ContractTraining):
    """Tests of whole runs."""

    # no effect on training ------------------------------------------------------------------------

    @contract_property("results unchanged")
    def test_a_training_gives_the_same_results_bit_by_bit(self) -> None:
        """Weights and losses equal those of a training without a hook, with everything saved."""
        evaluations = 0 if "evaluation" in self.missing else 2
        plain = self.train(None, steps=5, evaluations=evaluations)
        assert plain == self.train(None, steps=5, evaluations=evaluations)
        assert plain != self.train(None, steps=4, evaluations=evaluations)
        config = ReductionConfig(["mean"], norms=["l2"], save_raw_tensor=True)
        for save_config in (EVERY_STEP, SaveConfig(save_interval=2)):
            hook = self.new_hook(save_all=True, reduction_config=config, save_config=save_config)
            assert self.train(hook, steps=5, evaluations=evaluations) == plain
            hook.close()
            assert hook.report().errors.keys() <= {"reductions"}  # strings have none

    @contract_property("kill switch")
    def test_the_kill_switch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With `USE_SMDEBUG=0` nothing is saved or changed."""
        plain = self.train(None, steps=3)
        monkeypatch.setenv("USE_SMDEBUG", "0")
        uri = new_uri()
        hook = self.make_hook(uri, save_all=True)
        assert self.train(hook, steps=3, on_step=lambda s: hook.save_scalar("a", s)) == plain
        hook.close()
        assert list(WrittenTrial(uri).store.list()) == []

    # the end --------------------------------------------------------------------------------------

    @contract_property("end marker")
    def test_the_end_marker_is_written_at_the_end(self) -> None:
        """It contains the run and the number of index files."""
        trial = self.trained(self.new_hook(), steps=4)
        marker = trial.end_marker()
        assert marker is not None
        assert (marker.run_id, marker.sequences) == (trial.job().run_id, {"worker_0": 4})

    @contract_property("end marker")
    def test_a_training_that_is_to_be_resumed_has_no_end_marker(self) -> None:
        """`close(end_of_training=False)` stores everything except the end marker."""
        hook = self.new_hook()
        with hook:
            self.train(hook, steps=4)
            hook.close(end_of_training=False)
        trial = WrittenTrial(hook.trial_uri)
        assert sorted(trial.indexes()) == [0, 1, 2, 3]
        assert trial.end_marker() is None

    @contract_property("exception in the loop")
    def test_an_exception_in_the_loop_costs_no_step_before_it(self) -> None:
        """The exception is raised; earlier steps are stored, and the training has ended."""
        hook = self.new_hook(save_all=True)
        with pytest.raises(ScriptError):
            self.train(hook, steps=6, on_step=failing_in(3))
        trial = self.closed(hook)
        assert sorted(trial.indexes())[:3] == [0, 1, 2]
        assert max(trial.indexes()) <= 3
        assert {self.loss_name, *self.names.values()} <= trial.names(2)
        assert trial.end_marker() is not None

    @contract_property("two runs in one process")
    def test_two_runs_in_one_process(self) -> None:
        """A second hook starts over, with its own folder and run, and the same names."""
        trials = []
        for _ in range(2):
            hook = self.new_hook(save_all=True)
            trials.append(self.trained(hook, steps=3))
        first, second = trials
        assert first.job().run_id != second.job().run_id
        assert sorted(first.indexes()) == sorted(second.indexes()) == [0, 1, 2]
        assert first.names(2) == second.names(2)
        for name, value in first.values(2).items():
            np.testing.assert_array_equal(value, second.values(2)[name], err_msg=name)

    @contract_property("stop request")
    def test_a_stop_request_ends_the_training(self) -> None:
        """The requested run ends at most one step later."""
        hook = self.new_hook(stop_poll_s=600.0)
        steps: list[int] = []

        def on_step(step: int) -> None:
            steps.append(step)
            if step == 2:
                hook.flush()
                self.ask_to_stop(hook, WrittenTrial(hook.trial_uri).job().run_id)

        with self.ending():
            self.train(hook, steps=9, on_step=on_step)
        assert hook.stop_reason == REASON
        trial = self.closed(hook)
        assert len(steps) <= 4
        assert sorted(trial.indexes())[:3] == [0, 1, 2]
        assert trial.end_marker() is not None

    @contract_property("stop request")
    def test_a_stop_request_for_another_run_is_none(self) -> None:
        """A request for another run, such as an old one, changes nothing."""
        hook = self.new_hook(stop_poll_s=600.0)

        def on_step(step: int) -> None:
            if step == 2:
                self.ask_to_stop(hook, new_run_id())

        trial = self.trained(hook, steps=5, on_step=on_step)
        assert sorted(trial.indexes()) == [0, 1, 2, 3, 4]

    @contract_property("stop request")
    def test_a_flag_is_only_a_flag(self) -> None:
        """With `stop="flag"` the training continues, and the hook reports the request."""
        hook = self.new_hook(stop_poll_s=600.0, stop="flag")

        def on_step(step: int) -> None:
            if step == 2:
                hook.flush()
                self.ask_to_stop(hook, WrittenTrial(hook.trial_uri).job().run_id)

        trial = self.trained(hook, steps=5, on_step=on_step)
        assert sorted(trial.indexes()) == [0, 1, 2, 3, 4]
        assert hook.should_stop

    @contract_property("spot resume")
    def test_a_training_goes_on_at_its_last_checkpoint(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A second process continues the same run, with the step after the checkpoint."""
        folder = tmp_path / "checkpoints"
        folder.mkdir()
        (tmp_path / "checkpoint.json").write_text(json.dumps({"LocalPath": str(folder)}))
        monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(tmp_path / "checkpoint.json"))
        uri = new_uri()

        def on_step(step: int) -> None:
            if step == 2:
                (folder / "model").write_bytes(b"weights")
            failing_in(4)(step)

        interrupted = self.make_hook(uri, save_config=EVERY_STEP)
        with pytest.raises(ScriptError):
            self.train(interrupted, steps=6, on_step=on_step)
        interrupted.close(end_of_training=False)
        trial = WrittenTrial(uri)
        run_id = trial.job().run_id
        resumed = self.make_hook(uri, save_config=EVERY_STEP)
        self.trained(resumed, steps=3)
        assert trial.job().run_id == run_id
        assert resumed.training_run == 1
        assert sorted(trial.indexes()) == [0, 1, 2, 3, 4, 5]
        sequences = [index.sequence for _, index in sorted(trial.indexes().items())]
        assert sequences == [1, 2, 3, 4, 5, 6]

    # configuration --------------------------------------------------------------------------------

    @contract_property("configuration file")
    def test_a_configuration_file_says_it_all(self, tmp_path: Path) -> None:
        """A hook from a CreateTrainingJob file follows that file."""
        name = self.names[self.array_collection]
        reduced = {"reductions": "mean,abs_max", "save_interval": "2"}
        document = {
            "TrainingJobName": "contract-1",
            "DebugHookConfig": {
                "LocalPath": str(tmp_path / "tensors"),
                "HookParameters": {"save_interval": "3", "save_steps": "1"},
                "CollectionConfigurations": [
                    {"CollectionName": self.array_collection, "CollectionParameters": reduced}
                ],
            },
            "DebugRuleConfigurations": [{"RuleConfigurationName": "LossNotDecreasing"}],
        }
        (tmp_path / "hook.json").write_text(json.dumps(document))
        hook = self.make_hook_of_file(tmp_path / "hook.json")
        trial = self.trained(hook, steps=5)
        assert trial.uri == f"{(tmp_path / 'tensors').as_uri()}/"
        assert sorted(trial.indexes()) == [0, 1, 2, 3, 4]
        found = [step for step in range(5) if self.loss_name in trial.names(step)]
        assert found == [0, 1, 3]
        assert f"smdebug/reductions/abs_max/{name}" in trial.values(2)
        assert name not in trial.values(2)
        job = trial.job()
        assert job.training_job_name == "contract-1"
        assert job.debug_rule_configurations == ({"RuleConfigurationName": "LossNotDecreasing"},)
