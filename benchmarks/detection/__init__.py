"""How well rules detect faults of training programs, and how often they are wrong.

`python -m benchmarks.detection` trains small programs with the real hooks, healthy and with one
injected fault, and evaluates the rules. `RESULTS.md` describes the method and the results.
"""
