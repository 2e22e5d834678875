from __future__ import annotations

from rule_runtime.reporting.job_verdicts import verdicts_of


def verdict(name: str, status: str = "IssuesFound") -> dict[str, str]:
    return {"RuleConfigurationName": name, "RuleEvaluationStatus": status}


def test_findings_come_first_and_among_them_what_makes_all_else_pointless() -> None:
    given = [
        verdict("AllZero"),
        verdict("DeadRelu", "NoIssuesFound"),
        verdict("MissingActivation"),
        verdict("NonFinite"),
        verdict("LossDiverging", "NoIssuesFound"),
        verdict("my rule"),
    ]
    assert [each.name for each in verdicts_of(given)] == [
        *("NonFinite", "MissingActivation", "AllZero", "my rule"),
        *("LossDiverging", "DeadRelu"),
    ]
