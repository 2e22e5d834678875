"""Python runs a watched script as it does without us: its names, its path, its errors, its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.hook_layer.autopatch.watched_scripts import ROOT

STEPWATCH = str(Path(sys.executable).parent / "stepwatch")
DESCRIBES = """
import random, sys
names = {k: v for k, v in globals().items() if k not in ("__loader__", "__spec__", "random", "sys")}
print(names, type(__loader__), __spec__ and __spec__.name, sorted(globals()))
print(sys.argv, sys.path, sys.flags, sys.orig_argv, random.__file__, "queue" in sys.modules)
print(sys.excepthook is sys.__excepthook__)
print(getattr(sys.modules.get("sitecustomize"), "__file__", 0))
"""
ENDS = {
    "sys.exit('text')": 1,
    "sys.exit(7)": 7,
    "1 / 0": 1,
    "import os; os._exit(5)": 5,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "import faulthandler, os; faulthandler.enable(); os.abort()": -signal.SIGABRT,
    "import inspect; print(inspect.getsource(sys.modules['__main__']))": 0,
    "import pickle\nclass A: pass\nprint(pickle.dumps(A()))": 0,
    "import describe": 1,
}
FAILS_IN_TORCH = """
import torch
from torch import nn
net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    loss = nn.functional.cross_entropy(net(torch.ones(3, 2)), torch.tensor([0, 1, %d * step]))
    loss.backward()
    optimizer.step()
%s
"""


def run(folder: Path, *command: str, text: str = "", **more: str) -> tuple[int, str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("STEPW", "SMDEBUG"))}
    path = os.pathsep.join([str(ROOT), environment["PYTHONPATH"]])
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment | {"PYTHONPATH": path} | more,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def hooked(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hook_layer", "--out-dir", "out", *arguments]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "describe.py").write_text(DESCRIBES)
    (tmp_path / "random.py").write_text("")  # hides the library's own
    package = tmp_path / "package"
    package.mkdir()
    for name in ("__init__.py", "__main__.py"):
        (package / name).write_text(DESCRIBES if name == "__main__.py" else "")
    with zipfile.ZipFile(tmp_path / "file.zip", "w") as file:
        file.writestr("__main__.py", DESCRIBES)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe.py", "-c", "--config", "x"],
        ["./package", "x"],
        ["file.zip"],
        ["-m", "package", "x"],
        ["-m", "describe"],
        ["-c", DESCRIBES, "x"],
        ["-", "x"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_script_sees_the_same_python(folder: Path, arguments: list[str]) -> None:
    text = DESCRIBES if arguments[0] == "-" else ""
    plain = run(folder, sys.executable, *arguments, text=text)
    assert plain[0] == 0
    assert run(folder, *hooked(*arguments), text=text) == plain


def test_stepwatch_run_runs_it_the_same(folder: Path) -> None:
    plain = run(folder, sys.executable, "-W", "ignore", "describe.py", "x")[1]
    watched = run(
        folder, STEPWATCH, "run", "--", sys.executable, "-W", "ignore", "describe.py", "x"
    )[1]
    assert watched.startswith(plain)


def without_addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x", text)


@pytest.mark.parametrize("end", ENDS)
def test_a_script_ends_the_same(folder: Path, end: str) -> None:
    (folder / "describe.py").write_text("raise LookupError" if end == "import describe" else "")
    (folder / "train.py").write_text(f"import sys\n{end}\n")
    plain = run(folder, sys.executable, "train.py")
    assert plain[0] == ENDS[end]
    status, printed, errors = run(folder, *hooked("train.py"))
    assert (status, printed) == plain[:2]
    assert without_addresses(errors.replace("hook_layer", "")) == without_addresses(plain[2])


def test_the_debugger_runs_it(folder: Path) -> None:
    (folder / "train.py").write_text("value = 41\nprint('at the end')\n")
    commands = "next\np value + 1\ncontinue\nquit\n"
    plain = run(folder, sys.executable, "-m", "pdb", "train.py", text=commands)
    assert "42" in plain[1]
    assert run(folder, *hooked("-m", "pdb", "train.py"), text=commands) == plain


@pytest.mark.skipif(sys.version_info < (3, 11), reason="up to Python 3.10 frames cannot be hidden")
@pytest.mark.parametrize(
    ("label", "last"),
    [(1, "loss.backward()"), (9, ""), (1, "torch.optim.SGD([])"), (1, "torch.jit.script(7)")],
)
def test_no_frame_of_ours_is_in_a_traceback(tmp_path: Path, label: int, last: str) -> None:
    (tmp_path / "train.py").write_text(FAILS_IN_TORCH % (label, last))
    status, _, errors = run(tmp_path, *hooked("train.py"))
    assert status == 1
    assert "Traceback" in errors
    assert "hook_layer" not in errors
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize("switch", ["-I", "-E"])
def test_a_switch_by_which_nothing_is_watched_is_named(tmp_path: Path, switch: str) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    program = f"import sys; sys.path.append({str(ROOT)!r}); "
    program += (
        "from hook_layer.autopatch.command import main; main(['--out-dir', 'out', 'train.py'])"
    )
    status, printed, errors = run(tmp_path, sys.executable, switch, "-c", program)
    assert (status, printed) == (0, "trained\n"), errors
    assert f"with {switch} Python does not read PYTHONPATH" in errors


def test_an_excepthook_of_the_script_does_not_hide_a_stop(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch\nsys.excepthook = lambda *_: print('mine')\n"
        "from hook_layer.pytorch import Hook\n"
        "from hook_layer.format.job_file import StopFile, parse_job_file\n"
        "hook = Hook('own', stop_poll_s=0.001)\nnet = torch.nn.Linear(1, 1)\n"
        "hook.register_module(net)\nnet(torch.ones(1, 1))\nhook.flush()\n"
        "run = parse_job_file(hook.session.store.get('job.json'), file='').run_id\n"
        "request = StopFile('it is bad', '2026-11-20T10:00:00Z', run)\n"
        "hook.session.store.put('stop.json', request.encode())\n"
        "while True:\n    net(torch.ones(1, 1))\n"
    )
    status, printed, errors = run(tmp_path, *hooked("train.py"))
    assert (status, printed) == (3, ""), errors
    assert errors.count("stepwatch: training was stopped: it is bad") == 1
    assert "Traceback" not in errors
