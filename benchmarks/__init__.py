"""How fast the hook, the format and the rules are, beside what else one could use.

`make bench` runs all rows and prints one table; `python -m benchmarks --help` tells the rest. What
the serverless side costs, `make cost` tells.
"""
