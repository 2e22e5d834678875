"""What the serverless side costs: on paper, and by counting the requests of a simulated run.

`python -m benchmarks.cost` prints a bill, `--simulate` compares it with what is counted, and
`--help` tells the rest. `prices` has what the sums are made of, `workload` and `model` what is
assumed.
"""
