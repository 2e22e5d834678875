"""How well rules tell trainings that went wrong from healthy ones.

`python -m benchmarks.detection` trains small programs with the real hooks, healthy and with a fault
of known kind, and lets rules judge what was saved. `RESULTS.md` has the outcome in short, and says
what was run, on what data, and what was left out; `results/` has all tables of each part.
"""
