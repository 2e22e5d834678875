"""Figures in a script: shown in a window if there are windows, else said how they are written."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run

SHOWN: list[Figure] = []


class _Manager(FigureManagerBase):
    """Notes what would be in windows when the main loop runs."""

    @classmethod
    def start_main_loop(cls) -> None:
        SHOWN.extend(manager.canvas.figure for manager in Gcf.get_all_fig_managers())

    def show(self) -> None:
        pass


class _Canvas(FigureCanvasAgg):
    manager_class = _Manager


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    module: Any = ModuleType("windows_of_a_test")
    module.FigureCanvas, module.FigureManager = _Canvas, _Manager
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = mpl.get_backend()
    plt.switch_backend(f"module://{module.__name__}")
    SHOWN.clear()
    yield SHOWN
    plt.close("all")
    plt.switch_backend(before)


def picture() -> Figure:
    return Trial(make_run({"loss": [1.0]}).store, name="t").plot("loss")


def test_it_is_shown_on_demand(windows: list[Figure]) -> None:
    figure = picture()
    assert not plt.get_fignums()
    size = figure.get_size_inches().tolist()
    figure.show()
    assert windows == [figure]
    assert figure.get_size_inches().tolist() == size
    (number,) = plt.get_fignums()
    figure.show()
    assert plt.get_fignums() == [number]
    plt.close(number)  # as closing its window does
    figure.show()
    assert windows == [figure] * 3
    assert type(figure.canvas) is _Canvas


def test_where_there_are_no_windows_it_says_what_to_do() -> None:
    before = mpl.get_backend()
    plt.switch_backend("agg")
    try:
        with pytest.warns(UserWarning, match=r"'agg' has no windows; write it by figure\.savefig"):
            picture().show()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            picture().show(warn=False)
        assert not plt.get_fignums()
    finally:
        plt.switch_backend(before)
