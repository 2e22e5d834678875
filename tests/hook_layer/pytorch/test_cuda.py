"""What only a CUDA device shows; elsewhere these tests are skipped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hook_layer.testing.written_trial import WrittenTrial

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from torch import nn

import hook_layer.pytorch as smd
from hook_layer.pytorch import device_kernels
from hook_layer.pytorch.copies import BufferPool, HostCopy
from hook_layer.pytorch.device_kernels import ROW
from hook_layer.pytorch.device_statistics import DeviceBatches, _warn_of_loss
from hook_layer.pytorch.tensor_backend import TorchBackend
from hook_layer.pytorch.tensor_elements import UnreadableTensorError, readable
from tests.hook_layer.device_rows import device_statistics, torch_statistics

NUM_STEPS = 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.embedding = nn.Embedding(12, 36, sparse=False)
        self.fc = nn.Linear(8 * 36 + 36, 5)

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        seen = self.features(images).flatten(1)
        result: torch.Tensor = self.fc(torch.cat([seen, self.embedding(words)], 1))
        return result


class Training:
    """A training of a few steps on the device."""

    def __init__(
        self, hook: smd.Hook | None = None, *, registers: bool = True, **options: Any
    ) -> None:
        torch.manual_seed(0)
        self.net = Net().cuda()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, **options)
        self.hook = hook
        if registers:
            self.register()
        self.images = torch.randn(NUM_STEPS, 16, 1, 8, 8, device="cuda")
        self.words = torch.randint(12, (NUM_STEPS, 16), device="cuda")
        self.labels = torch.randint(5, (NUM_STEPS, 16), device="cuda")
        self.dtype: torch.dtype | None = None
        self.scaler = torch.amp.GradScaler("cuda", enabled=False)

    def register(self) -> None:
        if self.hook is not None:
            self.hook.register_module(self.net)
            self.hook.register_loss(self.criterion)
            self.hook.register_optimizer(self.optimizer)

    def loss(self, step: int) -> torch.Tensor:
        autocast = torch.autocast("cuda", self.dtype) if self.dtype else nullcontext()
        with autocast:
            outputs = self.net(self.images[step], self.words[step])
            loss: torch.Tensor = self.criterion(outputs, self.labels[step])
        return loss

    def step(self, step: int) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(step)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


def make_hook(trial: WrittenTrial, *, raw: bool = False, **options: Any) -> smd.Hook:
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "gradients", "biases", "losses", "outputs"],
        reduction_config=smd.ReductionConfig(save_raw_tensor=raw),
        **options,
    )
    hook.get_collection("outputs").include(".*_output_.*")
    return hook


@contextmanager
def no_waiting() -> Iterator[None]:
    """Make torch raise wherever the host would wait for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("raw", [False, True], ids=["statistics", "values"])
def test_training_never_waits_for_the_device(trial: WrittenTrial, raw: bool) -> None:
    hook = make_hook(trial, raw=raw)
    training = Training(hook, fused=True)
    training.step(0)  # cuDNN and cuBLAS may set themselves up
    torch.cuda.synchronize()
    with no_waiting():
        for step in range(1, NUM_STEPS):
            training.step(step)
    hook.close()
    assert not hook.report().errors, hook.report()
    for step in range(NUM_STEPS):
        names = trial.names(step)
        assert {"Net_fc.weight", "gradient/Net_fc.weight", "CrossEntropyLoss_output_0"} < names
        assert any(name.endswith("features.2_output_0") for name in names), names


def test_values_and_statistics_are_those_of_the_step(trial: WrittenTrial) -> None:
    """The optimiser writes to the weights while the copies are on their way."""
    hook = make_hook(trial, raw=True)
    training = Training(hook)
    twin = Training()
    expected = []
    for step in range(NUM_STEPS):
        weight = twin.net.fc.weight.detach().cpu().numpy().copy()
        twin.step(step)
        gradient = twin.net.fc.weight.grad
        assert gradient is not None
        expected.append((weight, gradient.cpu().numpy().copy()))
    torch.cuda._sleep(20_000_000)  # the host runs ahead, by some hundredths of a second
    for step in range(NUM_STEPS):
        training.step(step)
    hook.close()
    for step, (weight, gradient) in enumerate(expected):
        values, statistics = trial.values(step), trial.statistics(step)
        np.testing.assert_allclose(values["Net_fc.weight"], weight, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(values["gradient/Net_fc.weight"], gradient, rtol=1e-3, atol=1e-6)
        for name in ("Net_fc.weight", "gradient/Net_fc.weight", "Net_features.1.weight"):
            own = values[name].astype(np.float64)
            for column, number in (("mean", own.mean()), ("std", own.std()), ("max", own.max())):
                assert statistics[name][column] == pytest.approx(number, rel=1e-5, abs=1e-9)


def test_training_gives_the_same_numbers_with_and_without_a_hook(trial: WrittenTrial) -> None:
    results = []
    for hook in (None, make_hook(trial)):
        training = Training(hook)
        losses = [training.step(step).detach().clone() for step in range(NUM_STEPS)]
        results.append([*losses, *(p.detach().clone() for p in training.net.parameters())])
        if hook is not None:
            hook.close()
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("fused", [False, True])
def test_gradients_of_a_scaled_loss(trial: WrittenTrial, fused: bool) -> None:
    hook = make_hook(trial, raw=True)
    training = Training(hook, fused=fused)
    training.dtype = torch.float16
    training.scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for step in range(NUM_STEPS):
        training.step(step)
    hook.close()
    twin = Training()
    twin.loss(0).backward()
    gradient = twin.net.fc.weight.grad
    assert gradient is not None
    saved = trial.values(0)
    np.testing.assert_allclose(
        saved["gradient/Net_fc.weight"], gradient.cpu().numpy(), rtol=0.1, atol=1e-3
    )
    assert 0.5 < float(saved["CrossEntropyLoss_output_0"]) < 5
    assert not hook.report().errors, hook.report()


def compiled_whole(training: Training) -> Callable[[int], object]:
    training.net.compile()
    return training.step


def compiled_with_graphs(training: Training) -> Callable[[int], object]:
    training.net.compile(mode="reduce-overhead")

    def step(number: int) -> object:
        torch.compiler.cudagraph_mark_step_begin()
        return training.step(number)

    return step


def graphed_callable(training: Training) -> Callable[[int], object]:
    torch.cuda.make_graphed_callables(training.net, (training.images[0], training.words[0]))
    training.register()
    return training.step


def captured_step(training: Training) -> Callable[[int], object]:
    """The whole step in one graph, as CUDA's users do by hand."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            training.step(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    training.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = training.loss(0)
        loss.backward()
        training.optimizer.step()

    def step(number: int) -> object:
        training.images[0].copy_(training.images[number])
        graph.replay()
        return loss

    return step


WAYS = [compiled_whole, compiled_with_graphs, graphed_callable, captured_step]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_compiled_and_captured_trainings_go_on_undisturbed(
    trial: WrittenTrial, way: Callable[[Training], Callable[[int], object]]
) -> None:
    options: dict[str, Any] = {"capturable": True} if way is captured_step else {}
    hook = make_hook(trial)
    weights = []
    for own in (hook, None):
        # torch makes a graph of no module that has hooks; they may come later.
        training = Training(own, registers=way is not graphed_callable, **options)
        step = way(training)
        for number in range(NUM_STEPS):
            step(number)
        torch.cuda.synchronize()
        weights.append([p.detach().clone() for p in training.net.parameters()])
        if own is not None:
            own.close()
    for one, two in zip(*weights, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    assert not hook.report().errors, hook.report()
    assert trial.indexes()


def test_who_waits_for_a_copy_does_not_disturb_what_another_thread_records() -> None:
    copy = HostCopy(torch.ones(1 << 20, device="cuda"))
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        waiting = threading.Thread(target=copy.array)
        waiting.start()
        waiting.join()
        y = x * 2
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [2.0] * 4
    assert copy.array()[0] == 1


@contextmanager
def recorded(action: Callable[[], object], **options: Any) -> Iterator[None]:
    """Record a graph meanwhile, during which another thread does something; it must do so well."""
    x, graph, errors = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph(), []

    def act() -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - for the test to see
            errors.append(error)

    with torch.cuda.graph(graph, **options):
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
        y = x * 2
    yield
    graph.replay()
    torch.cuda.synchronize()
    assert not errors
    assert y.tolist() == [2.0] * 4


@pytest.mark.parametrize("raw", [False, True], ids=["statistics", "values"])
def test_steps_are_saved_while_another_thread_records_a_graph(
    trial: WrittenTrial, raw: bool
) -> None:
    hook = make_hook(trial, raw=raw)
    training = Training(hook)
    training.step(0)
    own = [torch.ones(1000 * size, device="cuda") for size in range(1, 200)]

    def save() -> None:
        for tensor in own:  # of new sizes, for which there are no buffers yet
            hook.save_tensor(f"own_{len(tensor)}", tensor)
        hook.close()

    with recorded(save):
        assert not hook.report().errors, hook.report()
    assert {"Net_fc.weight", "own_1000", "own_199000"} <= trial.names(0)


def test_a_writer_that_gets_no_statistics_off_the_device_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batches, stream = DeviceBatches(), torch.cuda.Stream()
    ones = torch.ones(4, device="cuda")
    with torch.cuda.stream(stream):
        batch, row, _ = batches.add([ones])
    _warn_of_loss.cache_clear()
    with recorded(batch.rows, stream=stream):
        assert np.isnan(batch.rows()[row]).all()
    assert caplog.text.count("statistics are lost") == 1


def test_passes_for_an_adversary_leave_nothing_on_the_device(trial: WrittenTrial) -> None:
    """Ours is a generator; while its adversary is trained, its steps begin anew."""
    hook = make_hook(trial)
    ours, adversary = (nn.Linear(64, 64, device="cuda") for _ in range(2))
    hook.register_module(ours)
    hook.follow_optimizers()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (ours, adversary)]
    adversary(ours(torch.ones(8, 64, device="cuda"))).mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    held = []
    for _ in range(30):
        optimizers[1].zero_grad(set_to_none=False)
        adversary(ours(torch.ones(8, 64, device="cuda")).detach()).mean().backward()
        optimizers[1].step()
        held.append(torch.cuda.memory_allocated())
    hook.close()
    assert held[-1] <= held[5]


def test_who_drops_a_value_does_not_wait_for_the_device() -> None:
    backend = TorchBackend(BufferPool(1 << 24), DeviceBatches())
    value = torch.ones(1 << 20, device="cuda")
    backend.snapshots([value], [None])[0].release()  # pinned memory is made, and goes back
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)  # about half a second
    (dropped,) = backend.snapshots([value], [None])
    copied = torch.cuda.Event()
    copied.record()
    dropped.release()
    assert not copied.query()
    (later,) = backend.snapshots([value.fill_(2)], [None])
    assert (later.array() == 2).all()


FAILING = """
import sys, torch
from torch import nn
import hook_layer.pytorch as smd
hook = smd.Hook(
    sys.argv[1],
    save_config=smd.SaveConfig(save_interval=1),
    include_collections=["weights", "gradients"],
    reduction_config=smd.ReductionConfig(save_raw_tensor=True),
)
net = nn.Sequential(nn.Embedding(5000, 16), nn.Flatten(), nn.Linear(64, 1)).cuda()
hook.register_module(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    words = torch.randint(5000, (8, 4), device="cuda") + (5000 if step == 7 else 0)
    optimizer.zero_grad()
    loss = net(words).mean()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def test_a_device_that_failed_ends_the_process_as_without_a_hook(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING, str(tmp_path / "trial")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "device-side assert" in done.stderr
    assert "terminate called" not in done.stderr


def test_statistics_of_several_streams_are_sent_behind_what_computes_them() -> None:
    batches, batch_of = DeviceBatches(), {}
    for number in (1, 2, 3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            value = torch.full((5000,), float(number), device="cuda")
            batch_of[number] = batches.add([value])
            value.fill_(9)
    assert batches.send()
    for number, (batch, row, _) in batch_of.items():
        assert batch.rows()[row][3:6] == (number, number, number)


def test_what_the_recording_of_a_graph_keeps_from_being_sent_is_lost_and_nothing_else() -> None:
    batches, stream, graph = DeviceBatches(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    x = torch.ones(4, device="cuda")
    with torch.cuda.stream(stream):
        batch, row, _ = batches.add([x])
    with torch.cuda.graph(graph, stream=stream):
        assert not batches.send()
        y = x * 2
    assert np.isnan(batch.rows()[row]).all()
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [6.0] * 4
    batch, row, _ = batches.add([x])
    assert batches.send()
    assert batch.rows()[row][5] == 3


def test_what_waits_on_another_stream_is_sent_while_a_graph_is_recorded() -> None:
    batches, graph = DeviceBatches(), torch.cuda.CUDAGraph()
    x = torch.ones(300_000, device="cuda")
    batch, row, _ = batches.add([x])
    with torch.cuda.graph(graph):
        assert batches.send()
        y = x * 2
    assert batch.rows()[row][5] == 1
    graph.replay()
    assert y[0].item() == 2


def test_a_device_without_memory_left_costs_statistics_but_not_the_training(
    trial: WrittenTrial,
) -> None:
    hook = make_hook(trial)
    training = Training(hook)
    big = nn.Linear(8192, 4096, device="cuda")
    hook.register_module(big)
    taken = []
    training.step(0)
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + (64 << 20)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total)
    try:
        for step in range(1, NUM_STEPS):
            taken.append(big(torch.ones(1, 8192, device="cuda")).sum().item())
            training.step(step)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    hook.close()
    assert len(set(taken)) == 1
    assert "gradient/Net_fc.weight" in trial.names(NUM_STEPS - 1)


@pytest.fixture(params=["one kernel", "several passes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How statistics are computed: by Triton's kernel, or without one."""
    if request.param == "one kernel":
        pytest.importorskip("triton")
        yield request.param
        assert not device_kernels._Triton.is_broken
    else:
        monkeypatch.setattr(device_kernels._Triton, "is_broken", True)
        yield request.param


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"]
)
def test_statistics_of_all_types(dtype: str, way: str) -> None:
    torch.manual_seed(1)
    kind = getattr(torch, dtype)
    for size in (1, 7, ROW, 3 * ROW + 5, 1030 * ROW + 1):
        values = (10 * torch.randn(size, device="cuda")).to(kind)
        if kind.is_floating_point and size > 3:
            values[1], values[2] = float("nan"), float("inf")
        flat = values.cpu().double().numpy()
        finite = flat[np.isfinite(flat)]
        row = device_statistics([values, values[:1]])[0]
        assert row[:3] == (size, np.isnan(flat).sum(), np.isinf(flat).sum())
        expected = [finite.min(), finite.max(), finite.mean(), finite.std()]
        np.testing.assert_allclose(row[3:7], expected, rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(row[8], np.abs(finite).sum(), rtol=2e-5)
        np.testing.assert_allclose(row[9], np.sqrt(np.square(finite).sum()), rtol=2e-5)


def test_tensors_in_any_order_of_memory(way: str) -> None:
    torch.manual_seed(1)
    whole = torch.randn(64, 3, 20, 20, device="cuda")
    whole[:, 1:] += 100
    views = [
        whole[:, 0],
        whole[:, :1].contiguous(memory_format=torch.channels_last),
        whole[..., 0],
        whole.view(-1)[::2],
        whole.to(memory_format=torch.channels_last)[:, 2],
        whole[0, 0].diagonal(),
        torch.ones(1, device="cuda").expand(200_000),
        torch._neg_view(whole),
        torch.nn.Parameter(whole[:, 1]),
        whole.to_sparse(),
    ]
    for view, row in zip(views, torch_statistics(views).rows(), strict=True):
        exact = view.detach().to_dense().resolve_neg().cpu().double().numpy()
        expected = [exact.size, exact.min(), exact.max(), exact.mean(), exact.std()]
        found = [row[0], *row[3:7]]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_a_subclass_without_memory_of_its_own_is_never_read_by_address(way: str) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    inner = torch.randn(3000, device="cuda")
    plain = readable(TwoTensor(inner, inner.clone()))
    assert torch.equal(plain, inner)
    assert torch_statistics([plain]).rows()[0, 0] == 3000
    with pytest.raises(UnreadableTensorError, match="several different tensors"):
        readable(TwoTensor(inner, inner + 1))


def test_a_piece_that_begins_with_nothing_finite(way: str) -> None:
    torch.manual_seed(1)
    values = 1e6 + 0.05 * torch.randn(9000, device="cuda")
    values[:5000] = float("nan")
    exact = values[5000:].cpu().double().numpy()
    row = device_statistics([values])[0]
    assert row[:3] == (9000, 5000, 0)
    np.testing.assert_allclose(row[5:7], [exact.mean(), exact.std()], rtol=1e-6)


def test_the_largest_numbers_there_are() -> None:
    largest = torch.finfo(torch.float64).max
    values = torch.tensor([-largest, 0.0], dtype=torch.float64, device="cuda")
    row = device_statistics([values])[0]
    np.testing.assert_allclose(row[5:8], [-largest / 2, largest / 2, largest / 2])


def test_many_tensors_at_once(way: str) -> None:
    torch.manual_seed(1)
    sizes = [1, 3, 1023, 1025, ROW, 50_000, 3_000_001, 12, 12]
    tensors = [torch.randn(size, device="cuda") + at for at, size in enumerate(sizes)]
    for tensor, row in zip(tensors, device_statistics(tensors), strict=True):
        exact = tensor.cpu().double().numpy()
        expected = [exact.size, 0, 0, exact.min(), exact.max(), exact.mean(), exact.std()]
        np.testing.assert_allclose(row[:7], expected, rtol=1e-5, atol=1e-9)


def test_without_a_compiler_statistics_come_another_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(device_kernels, "_kernel", broken)
    monkeypatch.setattr(device_kernels._Triton, "is_broken", False)
    caplog.set_level("INFO", logger="stepwatch")
    for _ in range(2):
        assert device_statistics([torch.ones(5, device="cuda")])[0][:6] == (5, 0, 0, 1, 1, 1)
    assert caplog.text.count("Failed to find C compiler") == 1


def test_huge_tiny_and_nearly_equal_elements(way: str) -> None:
    torch.manual_seed(1)
    noise = torch.randn(5 * ROW + 3, device="cuda", dtype=torch.float64)
    for values in (3e38 * noise.tanh(), 1e-42 * noise, 1e3 + 1e-2 * noise, 0.1 + 0 * noise):
        single = values.float()
        exact = single.cpu().double().numpy()
        row = device_statistics([single])[0]
        expected = [exact.mean(), exact.std(), np.abs(exact).sum()]
        np.testing.assert_allclose(
            [row[5], row[6], row[8]], expected, rtol=1e-4, atol=1e-6 * np.abs(exact).max()
        )


def test_a_stream_of_the_scripts_own(trial: WrittenTrial) -> None:
    hook = make_hook(trial, raw=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        training = Training(hook)
        stream.wait_stream(torch.cuda.default_stream())
        for step in range(NUM_STEPS):
            torch.cuda._sleep(2_000_000)
            training.step(step)
    hook.close()
    values, statistics = trial.values(3), trial.statistics(3)
    own = values["gradient/Net_fc.weight"]
    assert statistics["gradient/Net_fc.weight"]["l2"] == pytest.approx(
        float(np.linalg.norm(own)), rel=1e-5
    )
