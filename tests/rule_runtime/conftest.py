from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")  # its event loop would fail other tests of the process
def browser() -> Iterator[Browser]:
    from tests.rule_runtime.browser import opened_browser

    with opened_browser() as browser:
        yield browser
