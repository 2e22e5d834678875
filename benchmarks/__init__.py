"""How fast the hook, the format and the rules are, compared with other tools.

`make bench` runs all rows and prints one table; `python -m benchmarks --help` shows the options.
`make cost` prints what the serverless side costs.
"""
