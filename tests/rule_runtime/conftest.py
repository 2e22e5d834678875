from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.rule_runtime.browser import opened_browser


@pytest.fixture(scope="module")  # its event loop would fail other tests of the process
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser
