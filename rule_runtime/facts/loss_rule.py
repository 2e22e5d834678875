"""Former place of what `loss_curves` holds; rules that are not rewritten yet import it here."""

from __future__ import annotations

from rule_runtime.facts.loss_curves import Finding, training_losses

__all__ = ["Finding", "training_losses"]
