"""The functions of the pipeline: a thin handler each, and the service that it calls."""
