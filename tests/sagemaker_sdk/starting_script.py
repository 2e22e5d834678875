"""Starts a prepared job by the SageMaker SDK, and prints the request that the SDK made of it.

Runs in an environment of one major version of the SDK, with the checkout on the path, and with
`AWS_ENDPOINT_URL` naming an emulator.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import boto3

from rule_runtime.jobs import PreparedJob, prepare

try:
    from sagemaker.core import debugger as sdk
except ImportError:
    from sagemaker import debugger as sdk

import smdebug_rulesconfig

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:latest"
ROLE = "arn:aws:iam::123456789012:role/training"
NAME = "mnist-7"


def main(bucket: str, source_dir: str) -> None:
    session = boto3.Session()
    requests: list[Any] = []
    session.events.register(
        "provide-client-params.sagemaker.CreateTrainingJob",
        lambda params, **_: requests.append(params),
    )
    job = prepare(
        job_name=NAME,
        output_path=f"s3://{bucket}/output",
        hook_config=sdk.DebuggerHookConfig(
            collection_configs=[sdk.CollectionConfig("losses", {"save_interval": "5"})]
        ),
        rules=[sdk.Rule.sagemaker(smdebug_rulesconfig.vanishing_gradient())],
        actions=smdebug_rulesconfig.StopTraining(),
        tensorboard=sdk.TensorBoardOutputConfig(s3_output_path=f"s3://{bucket}/output"),
        checkpoint_s3_uri=f"s3://{bucket}/checkpoints",
        checkpoint_local_path="/opt/ml/checkpoints",
    )
    started, artifacts = start(job, source_dir, session)
    summary = job.job(started).rule_job_summary()
    reported = [[each["RuleConfigurationName"], each["RuleEvaluationStatus"]] for each in summary]
    printed = {"request": requests[-1], "started": started, "summary": reported}
    print(json.dumps({**printed, "artifacts": artifacts, "debug_output": job.debug_output}))


def start(job: PreparedJob, source_dir: str, session: Any) -> tuple[str, str | None]:
    """Start the job by whichever SDK is there, and return its name and the path of its tensors."""
    try:
        from sagemaker.estimator import Estimator
    except ImportError:
        return start_by_model_trainer(job, source_dir, session), None
    from sagemaker import Session

    estimator = Estimator(
        image_uri=IMAGE,
        role=ROLE,
        instance_count=1,
        instance_type="ml.m5.large",
        sagemaker_session=Session(session),
        entry_point="train.py",
        **job.estimator_arguments(source_dir),
    )
    estimator.fit(wait=False, job_name=job.job_name)
    return job.job_name, estimator.latest_job_debugger_artifacts_path()


def start_by_model_trainer(job: PreparedJob, source_dir: str, session: Any) -> str:
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.train import ModelTrainer
    from sagemaker.train.configs import Compute

    trainer = ModelTrainer(
        training_image=IMAGE,
        role=ROLE,
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        # It would ask STS, at an address of its own, for the account in the default bucket's name.
        sagemaker_session=Session(session, default_bucket="my-bucket"),
        **job.model_trainer_arguments(source_dir, entry_script="train.py"),
    )
    trainer.train(wait=False, logs=False)
    started: str = trainer._latest_training_job.training_job_name
    return started


if __name__ == "__main__":
    main(*sys.argv[1:])
