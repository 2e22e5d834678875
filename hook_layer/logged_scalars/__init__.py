"""Sees the numbers that a script gives to its logging libraries, such as wandb or TensorBoard."""

from __future__ import annotations
