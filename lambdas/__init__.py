"""The Lambda functions of the pipeline: each has a thin handler that calls a service."""
