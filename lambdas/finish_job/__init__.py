"""The function that has runs judged when SageMaker says that their training job has ended."""
