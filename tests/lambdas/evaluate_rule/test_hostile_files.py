"""Files that somebody else wrote: none of them may keep a job's other files from being judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from tests.lambdas.conftest import MemoryPipeline

RUN = "01JD0000000000000000000001"
NUMBERS = st.sampled_from([0, 1, 2, 7, 1000, 2**31, 2**63 - 1, 2**63, -1, None, "1", 1.5, True])


@st.composite
def index_files(draw: st.DrawFn, valid: bytes) -> bytes:
    """Return an index file with some of its values replaced, or cut short."""
    document = json.loads(valid)
    for name in draw(st.sets(st.sampled_from(sorted(document)), max_size=3)):
        if name == "statistics" and draw(st.booleans()):
            part = draw(st.sampled_from(sorted(document[name])))
            document[name][part] = draw(NUMBERS | st.just([]) | st.just("AAAA"))
        elif draw(st.booleans()):
            document[name] = draw(NUMBERS | st.just({}) | st.just([]) | st.just("../x"))
        else:
            del document[name]
    content = json.dumps(document).encode()
    return content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content


def end_markers(valid: bytes) -> st.SearchStrategy[bytes]:
    """Return end markers, most of which tell something that cannot be."""
    sequences = st.dictionaries(st.sampled_from(["worker_0", "worker_9", ""]), NUMBERS)
    reported = st.fixed_dictionaries({"RunId": st.sampled_from([RUN, "a#b", 5])}).flatmap(
        lambda run: sequences.map(lambda last: json.dumps({**run, "Sequences": last}).encode())
    )
    return st.sampled_from([valid, b"", b"\xff#", b"[" * 10_000, RUN.encode()]) | reported


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_index_file_fails_the_batch(
    data: st.DataObject, memory_pipelines: Callable[..., MemoryPipeline], trial_files: Any
) -> None:
    pipeline = memory_pipelines()
    pipeline.store.put(JOB_FILE, trial_files.job_bytes(RUN))
    keys = []
    for number, step in enumerate(sorted(data.draw(st.sets(STEPS, min_size=1, max_size=3)))):
        keys.append(index_key(step, data.draw(st.sampled_from(["worker_0", "worker_1"]))))
        valid = trial_files.index_bytes(step % 1000, sequence=number + 1)
        pipeline.store.put(keys[-1], data.draw(index_files(valid)))
    pipeline.store.put(END_MARKER, data.draw(end_markers(trial_files.marker_bytes(RUN))))
    for batch in (keys, [END_MARKER], keys):
        failures = pipeline.service().evaluate(pipeline.records(batch), lambda: 60_000)
        assert not failures
    assert all(stored.state.is_announced for stored in pipeline.states.items.values())


STEPS = st.sampled_from([0, 1, 5, 1000, 10**12 - 1, 10**18 - 1])
