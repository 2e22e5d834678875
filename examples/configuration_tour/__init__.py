"""A tour of the configuration: one short training for each thing that can be configured."""
