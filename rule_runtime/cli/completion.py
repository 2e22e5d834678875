"""Shell completion of the names of rules and packs."""

from __future__ import annotations

__all__ = ["complete_pack", "complete_rule"]


def complete_rule(incomplete: str) -> list[str]:
    """Return the rules' names with this prefix, as `vanishing_gradient` or VanishingGradient."""
    # Imports are lazy, because the shell waits for them.
    from rule_runtime.engine.registry import available_rules  # noqa: PLC0415
    from rule_runtime.engine.rule import snake_case  # noqa: PLC0415

    is_class = incomplete[:1].isupper()
    names = (name if is_class else snake_case(name) for name in available_rules())
    return sorted(name for name in names if name.startswith(incomplete))


def complete_pack(incomplete: str) -> list[str]:
    """Return the packs' names with this prefix."""
    from rule_runtime.configuration.packs import available_packs  # noqa: PLC0415 - as above

    return [name for name in available_packs() if name.startswith(incomplete)]
