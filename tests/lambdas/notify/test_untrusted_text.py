"""Texts of others in messages to people: they stay words."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lambdas.notify.notice import StatusFacts, overdue_notice, status_notice
from lambdas.notify.untrusted_text import ascii_line, plain_line
from lambdas.shared.settings import NotifySettings
from lambdas.shared.stop_table import StopItem, StopReason, StopTarget
from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.jobs.console_links import log_group_page, training_job_page

SETTINGS = NotifySettings("states", frozenset({"tensors"}), "arn:aws:sns:x", "eu-west-1")
HOSTILE = [
    "loss\r\nBcc: all@example.com",
    "loss\u2028Job: https://evil.example/",
    "<a href='https://evil.example'>click</a>",
    "<!channel> <https://evil.example|the console>",
    "[the console](https://evil.example)",
    "[the console][1]",
    "![x](//evil.example/pixel.png)",
    "www.evil.example",
    "WWW.evil.example",
    "gpj.exe\u202ecod\u200b.\u2066x",
    "\x00\x1b[31mred\x1b[0m",
    "@everyone @here @channel",
    "@channel\u00b2",
    "\u0436www.evil.example",
    "x" * 10_000,
    "ж" * 300,
    "",
]
TEXTS = st.text() | st.sampled_from(HOSTILE) | st.lists(st.sampled_from(HOSTILE)).map("".join)


def assert_plain(line: str) -> None:
    kinds = {unicodedata.category(c)[0] for c in line if c != " "}
    assert not kinds & set("CZ")
    assert "://" not in line
    assert not re.search(r"<[\w/!?@#]", line)
    assert not re.search(r"\][\[\(]", line)
    assert not re.search(r"\bwww\.", line, re.IGNORECASE)
    assert not re.search(r"@(here|channel|everyone)\b", line, re.IGNORECASE)


@given(TEXTS, st.integers(10, 600))
@example(":/" + "\u200b" + "/x", 100)
@example("<" + "\u00ad" + "b>", 100)
@example("w\u200bww.evil.example", 100)
def test_a_line_stays_one_line_of_words(text: str, max_length: int) -> None:
    line = plain_line(text, max_length)
    assert_plain(line)
    assert len(line) <= max_length


@pytest.mark.parametrize(
    "text",
    [
        "gradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07 (worker_0, TRAIN)",
        "layers[0].kernel:0: 2 of 4 elements are NaN",
        "a < b > c & d, größer als 5 %",
    ],
)
def test_what_rules_say_is_not_changed(text: str) -> None:
    assert plain_line(text, 600) == text


@given(TEXTS, TEXTS, st.sampled_from(RuleStatus))
def test_subjects_are_what_sns_takes(job: str, rule: str, status: RuleStatus) -> None:
    subject = status_notice(StatusFacts(job, rule, status, ""), SETTINGS).subject
    assert re.fullmatch(r"[\x21-\x7e][\x20-\x7e]{0,98}", subject)
    item = StopItem(StopTarget(job, "loop"), StopReason(rule, ""), "late", 2, 0, 0)
    overdue = overdue_notice(item, SETTINGS)
    assert re.fullmatch(r"[\x21-\x7e][\x20-\x7e]{0,98}", overdue.subject)


@given(job=TEXTS, rule=TEXTS, found=TEXTS, root=TEXTS)
def test_no_text_of_others_adds_a_line_a_link_or_markup(
    job: str, rule: str, found: str, root: str
) -> None:
    evidence = Evidence(
        step=3,
        mode="TRAIN",
        worker=found,
        tensor=found,
        measure=found,
        value=float("nan"),
        threshold=1.0,
        sentence=found,
        remedy=found or "x",
    )
    status = RuleStatus.ISSUES_FOUND
    facts = StatusFacts(job, rule, status, found, evidence, f"s3://b/{root}", "01J")
    innocent = StatusFacts("j", "r", status, "x", replaced(evidence), "s3://b/x", "01J")
    message = status_notice(facts, SETTINGS)
    lines = message.body.splitlines()
    assert len(lines) == len(status_notice(innocent, SETTINGS).body.splitlines())
    for line in lines:
        assert_plain(line.removeprefix("Tensors: s3://"))
    for attribute in message.attributes.values():
        assert attribute["StringValue"]
        assert attribute["StringValue"].isprintable()
    assert len(message.body.encode()) < 256 * 1024


def replaced(evidence: Evidence) -> Evidence:
    words = dict.fromkeys(("mode", "worker", "tensor", "measure", "sentence", "remedy"), "x")
    return Evidence.from_json({**evidence.to_json(), **words})


@given(TEXTS)
def test_ascii_lines(text: str) -> None:
    assert re.fullmatch(r"[\x20-\x7e]{0,40}", ascii_line(text, 40))


class TestLinks:
    @pytest.mark.parametrize(
        ("region", "host"),
        [
            ("eu-west-1", "eu-west-1.console.aws.amazon.com"),
            ("cn-north-1", "cn-north-1.console.amazonaws.cn"),
            ("us-gov-west-1", "us-gov-west-1.console.amazonaws-us-gov.com"),
        ],
    )
    def test_each_partition_has_its_host(self, region: str, host: str) -> None:
        page = training_job_page(region, "mnist-7")
        assert page == f"https://{host}/sagemaker/home?region={region}#/jobs/mnist-7"

    @given(TEXTS)
    def test_no_name_leads_anywhere_else(self, name: str) -> None:
        beginning = training_job_page("eu-west-1", "")
        page = training_job_page("eu-west-1", name)
        assert re.fullmatch(r"[A-Za-z0-9_.~%-]*", page.removeprefix(beginning))
        beginning = log_group_page("eu-west-1", "")
        page = log_group_page("eu-west-1", name)
        assert re.fullmatch(r"[A-Za-z0-9_.~$-]*", page.removeprefix(beginning))
