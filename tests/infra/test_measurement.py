"""What synthesis tells of the weight of a deployment."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from infra import measurement


def test_the_size_is_that_of_files_and_of_their_archive(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "zeros").write_bytes(bytes(100_000))
    (tmp_path / "text").write_bytes(b"abc" * 1000)
    size, packed = measurement.layer_size(tmp_path)
    assert size == 103_000
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(tmp_path.rglob("*")):
            archive.write(path, path.relative_to(tmp_path))
    assert packed == pytest.approx(len(buffer.getvalue()), rel=0.5, abs=500)


def test_the_import_is_of_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "REPEATS", 1)
    assert 0.05 < measurement.import_time_s() < 60
    monkeypatch.setattr(measurement, "MEASURE", f"import {measurement.HANDLER}_that_is_not_there")
    with pytest.raises(measurement.ImportTimeError, match="No module named"):
        measurement.import_time_s()


def test_both_stand_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half").write_bytes(bytes(2**19))
    monkeypatch.setattr(measurement, "import_time_s", lambda: 0.444)
    line = measurement.summary(tmp_path)
    assert line == "layer 0.5 MiB of 250 (0.0 MiB zipped), import of an evaluator 0.44 s here"
