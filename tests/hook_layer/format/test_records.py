"""Records of event files: golden bytes, every type both ways, and hostile files."""

from __future__ import annotations

import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hook_layer.format.checksum import PAYLOAD_CHECKSUM, masked_crc32c
from hook_layer.format.errors import FormatError, RecordError, UnsupportedDtypeError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.records import (
    EncodedRecord,
    decode_record,
    encode_record,
    read_records,
    to_array,
)

GOLDEN_FLOAT = bytes.fromhex(
    "5f00000000000000503f288609000000000000f83f2a540a520a01774230080112121207080212"
    "03775f321207080312"
    "03775f332218000000000000803f0000004000004040000080400000a0404a1b0a0e0a096d6f64"
    "655f73746570120130"
    "0a090a046d6f6465120131b3c02d06"
)
GOLDEN_STRINGS = bytes.fromhex(
    "4800000000000000fe92489d09000000000000f83f2a3d0a3b0a04737472734216120c120a0802"
    "1206737472735f32420161420362c3a94a1b0a0e0a096d6f64655f737465701201300a090a046d"
    "6f6465120131b3c02d06"
)
PLAIN_DTYPES = [
    "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16", "?",
]  # fmt: skip


def encoded(value: np.ndarray, name: str = "w", step: int = 0) -> EncodedRecord:
    return encode_record(name, value, step=step, mode=ModeKeys.TRAIN, mode_step=step, wall_time=1.5)


def joined(record: EncodedRecord) -> bytes:
    return b"".join(record.buffers)


def framed(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc32c(length)) + payload + PAYLOAD_CHECKSUM


def test_a_float_tensor_has_the_originals_bytes() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert joined(encoded(value)) == GOLDEN_FLOAT


def test_a_string_tensor_has_the_originals_bytes() -> None:
    assert joined(encoded(np.array(["a", "bé"]), "strs")) == GOLDEN_STRINGS


def test_the_golden_record_is_read() -> None:
    record = decode_record(GOLDEN_FLOAT, file="golden")
    assert (record.name, record.step, record.mode, record.mode_step) == ("w", 0, ModeKeys.TRAIN, 0)
    assert record.wall_time == 1.5
    np.testing.assert_array_equal(record.value, np.arange(6, dtype="f4").reshape(2, 3))


@given(
    value=hnp.arrays(
        st.sampled_from(PLAIN_DTYPES),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    name=st.text(min_size=1, max_size=40),
    step=st.integers(0, 2**62),
    mode=st.sampled_from(ModeKeys),
)
def test_every_plain_type_and_shape_comes_back(
    value: np.ndarray, name: str, step: int, mode: ModeKeys
) -> None:
    record = encode_record(name, value, step=step, mode=mode, mode_step=step // 2, wall_time=0.25)
    data = joined(record)
    assert len(data) == record.length
    back = decode_record(data, file="f", crc32c=record.crc32c)
    assert (back.name, back.step, back.mode, back.mode_step) == (name, step, mode, step // 2)
    assert back.value.dtype == value.dtype
    assert back.value.shape == value.shape
    assert back.value.tobytes() == value.tobytes()


@given(
    hnp.arrays(
        st.sampled_from([f">{dtype}" for dtype in PLAIN_DTYPES if dtype not in ("?", "i1", "u1")]),
        hnp.array_shapes(max_dims=3, max_side=4),
    )
)
def test_big_endian_values_are_kept(value: np.ndarray) -> None:
    back = decode_record(joined(encoded(value)), file="f").value
    assert back.dtype == value.dtype.newbyteorder("<")
    np.testing.assert_array_equal(back, value)


def test_views_of_every_layout_are_kept() -> None:
    base = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    views = [base.T, base[:, ::2], base[::-1], np.asfortranarray(base), base[1, 2, 3]]
    for view in views:
        array = np.asarray(view)
        np.testing.assert_array_equal(decode_record(joined(encoded(array)), file="f").value, array)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_narrow_floats_are_saved_as_float32(name: str) -> None:
    value = np.array([1.5, -0.25, 448.0, np.nan], dtype=getattr(ml_dtypes, name))
    back = decode_record(joined(encoded(value)), file="f").value
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, value.astype(np.float32))


@pytest.mark.parametrize(
    ("tag", "name"), [(14, "bfloat16"), (24, "float8_e5m2"), (25, "float8_e4m3fn")]
)
def test_narrow_floats_of_other_writers_are_read(tag: int, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(256, dtype=np.uint8 if dtype.itemsize == 1 else np.uint16) * (
        1 if dtype.itemsize == 1 else 257
    )
    content = codes.tobytes()
    shape = b"\x12\x05\x12\x03\x08\x80\x02"
    tensor = b"\x08" + bytes([tag]) + shape + b"\x22" + _varint(len(content)) + content
    value = b"\x0a\x01w" + b"\x42" + _varint(len(tensor)) + tensor
    summary = b"\x0a" + _varint(len(value)) + value
    back = decode_record(framed(b"\x2a" + _varint(len(summary)) + summary), file="f")
    assert back.mode is ModeKeys.GLOBAL
    np.testing.assert_array_equal(back.value, codes.view(dtype).astype(np.float32))


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


@pytest.mark.parametrize("field", ["qint8", "quint8", "qint16", "quint16", "qint32"])
def test_quantised_types_keep_their_numbers(field: str) -> None:
    dtype = np.dtype([(field, field[1:])])
    value = np.zeros(3, dtype=dtype)
    value[field] = [1, 2, 3]
    back = decode_record(joined(encoded(value)), file="f").value
    numbers = back[back.dtype.names[0]] if back.dtype.names else back
    np.testing.assert_array_equal(numbers, [1, 2, 3])
    assert numbers.dtype.itemsize == value[field].dtype.itemsize


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
)
def test_strings_come_back(texts: list[str]) -> None:
    for value in (np.array(texts, dtype=object), np.array(texts, dtype=np.str_)):
        assert decode_record(joined(encoded(value)), file="f").value.tolist() == texts


def test_bytes_and_scalar_strings_come_back() -> None:
    assert decode_record(joined(encoded(np.array([b"ab", b"c"]))), file="f").value.tolist() == [
        "ab",
        "c",
    ]
    assert decode_record(joined(encoded(np.array("one"))), file="f").value.item() == "one"
    square = np.array([["a", "b"], ["c", "d"]])
    assert decode_record(joined(encoded(square)), file="f").value.tolist() == square.tolist()


def test_python_scalars_get_the_originals_shape() -> None:
    assert to_array(1.5).shape == (1,)
    assert to_array(np.float32(1.5)).shape == (1,)
    assert to_array(np.array(1.5)).shape == ()
    assert to_array([1, 2]).dtype == np.int64


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2, dtype="M8[s]"),
        np.zeros(2, dtype=[("a", "f4"), ("b", "f4")]),
        np.array([{}], dtype=object),
        np.zeros(1, dtype=np.longdouble),
    ],
)
def test_a_type_without_a_tag_is_refused(value: np.ndarray) -> None:
    with pytest.raises(UnsupportedDtypeError):
        encoded(value)


def test_a_large_tensor_is_not_copied_on_either_way() -> None:
    value = np.ones(4 << 20, dtype=np.float32)
    record = encoded(value)
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), value) for part in record.buffers)
    data = joined(record)
    tracemalloc.start()
    back = decode_record(data, file="f", crc32c=record.crc32c).value
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.shares_memory(back, np.frombuffer(data, np.uint8))
    assert peak < 1 << 20


def test_a_file_of_records_is_read_with_its_offsets() -> None:
    parts = [encoded(np.full(n, n), f"t{n}", step=7) for n in range(3)]
    data = b"".join(joined(part) for part in parts)
    found = list(read_records(data, file="f"))
    assert [offset for offset, _ in found] == [
        0,
        parts[0].length,
        parts[0].length + parts[1].length,
    ]
    assert [record.name for _, record in found] == ["t0", "t1", "t2"]
    assert list(read_records(b"", file="f")) == []


def test_a_record_with_its_true_checksum_is_read() -> None:
    payload = GOLDEN_FLOAT[12:-4]
    true = GOLDEN_FLOAT[:-4] + struct.pack("<I", masked_crc32c(payload))
    assert decode_record(true, file="f").name == "w"


@pytest.mark.parametrize("cut", range(len(GOLDEN_FLOAT)))
def test_a_truncated_file_names_itself_and_the_offset(cut: int) -> None:
    with pytest.raises(RecordError, match="events/x") as caught:
        decode_record(GOLDEN_FLOAT[:cut], file="events/x", offset=40)
    assert caught.value.file == "events/x"
    assert caught.value.offset == 40


@given(st.integers(0, len(GOLDEN_FLOAT) * 8 - 1))
def test_a_flipped_bit_is_found_by_the_indexs_checksum(bit: int) -> None:
    checksum = encoded(np.arange(6, dtype=np.float32).reshape(2, 3)).crc32c
    damaged = bytearray(GOLDEN_FLOAT)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FormatError):
        decode_record(bytes(damaged), file="f", crc32c=checksum)


@given(data=st.binary(max_size=200), seed=st.binary(max_size=20))
def test_hostile_payloads_raise_the_one_error_family(data: bytes, seed: bytes) -> None:
    for payload in (data, GOLDEN_FLOAT[12:-4].replace(b"\x42\x30", seed), seed + data):
        try:
            decode_record(framed(payload), file="f")
        except FormatError as error:
            assert error.file == "f"
            assert error.offset is not None


@pytest.mark.parametrize(
    "shape",
    [
        "12 0b 12 09 08 ff ff ff ff ff ff ff 7f",  # one dimension of 2^55
        "12 0d 12 0b 08 ff ff ff ff ff ff ff ff ff 01",  # a dimension of -1
        "12 08 12 02 08 7f 12 02 08 00",  # more than the content holds, then nothing
    ],
)
def test_a_shape_that_the_content_cannot_fill_allocates_nothing(shape: str) -> None:
    tensor = bytes.fromhex("08 01") + bytes.fromhex(shape) + bytes.fromhex("22 04 00 00 80 3f")
    value = b"\x42" + bytes([len(tensor)]) + tensor
    summary = b"\x0a" + bytes([len(value)]) + value
    tracemalloc.start()
    with pytest.raises(RecordError):
        decode_record(framed(b"\x2a" + bytes([len(summary)]) + summary), file="f")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@st.composite
def hostile_tensors(draw: st.DrawFn) -> bytes:
    """Encode well-formed tensors whose type, shape and content need not fit each other."""
    lengths = st.sampled_from([0, 1, 2, 3, 2**31, 2**62, 2**64 - 1])
    shape = draw(st.lists(lengths, max_size=40))
    tag = draw(st.integers(0, 30))
    content = draw(st.binary(max_size=64))
    strings = draw(st.lists(st.binary(max_size=8), max_size=8))
    dimensions = b"".join(_field(2, b"\x08" + _varint(length)) for length in shape)
    tensor = b"\x08" + _varint(tag) + _field(2, dimensions) + _field(4, content)
    tensor += b"".join(_field(8, text) for text in strings)
    value = _field(1, draw(st.binary(max_size=4))) + _field(8, tensor)
    return _field(5, _field(1, value))


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


@given(hostile_tensors())
def test_tensors_that_contradict_themselves_raise_the_one_error_family(payload: bytes) -> None:
    try:
        decode_record(framed(payload), file="f")
    except FormatError as error:
        assert error.file == "f"


def test_one_long_string_among_many_short_ones_is_not_padded() -> None:
    texts = ["x" * 100_000] + [""] * 100_000
    record = encoded(np.array(texts, dtype=object))
    data = joined(record)
    tracemalloc.start()
    value = decode_record(data, file="f").value
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value.tolist() == texts
    assert peak < 40 << 20


def test_a_length_beyond_the_file_is_refused_before_reading() -> None:
    length = struct.pack("<Q", 2**62)
    header = length + struct.pack("<I", masked_crc32c(length))
    with pytest.raises(RecordError, match="claims 4611686018427387904 bytes"):
        decode_record(header + b"\x00" * 20, file="f")


def test_bytes_after_the_record_are_refused() -> None:
    with pytest.raises(RecordError, match="follow the record"):
        decode_record(GOLDEN_FLOAT + b"\x00", file="f")
