"""What the serverless side costs: on paper, and by counting the requests of a simulated run.

`python -m benchmarks.cost` prints a bill, `--simulate` compares it with what is counted, and
`--help` shows the options. `prices` has the list prices, `workload` and `model` the assumptions.
"""
