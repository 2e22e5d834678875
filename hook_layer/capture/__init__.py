"""Data of one step: statistics, reductions, histograms, and the functions they come from."""

from __future__ import annotations
