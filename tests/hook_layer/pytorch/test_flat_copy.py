"""Small tensors are copied into one buffer, of which each has a segment."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hook_layer.pytorch.copies import FlatCopy, copied_together

TENSORS = {
    "one": [torch.arange(6.0).view(2, 3)],
    "one transposed": [torch.arange(6.0).view(2, 3).t()],
    "one empty": [torch.zeros(2, 0)],
    "several": [torch.arange(6).view(2, 3).t(), torch.tensor(7), torch.zeros(0, dtype=torch.int64)],
    "only empty": [torch.zeros(0, 3), torch.zeros(2, 0)],
    "bool": [torch.tensor([True, False]), torch.tensor([[True]])],
    "parameters": [nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(3, 1))],
}


@pytest.mark.parametrize("tensors", TENSORS.values(), ids=TENSORS)
def test_each_segment_is_one_tensor_in_c_order(tensors: list[Tensor]) -> None:
    copy = FlatCopy(tensors)
    segments = copy.segments([tensor.shape for tensor in tensors])
    assert len(segments) == len(tensors)
    for segment, tensor in zip(segments, tensors, strict=True):
        np.testing.assert_array_equal(segment.array(), tensor.detach().numpy(), strict=True)
        assert segment.nbytes == tensor.nbytes
    assert copy.array().shape == (sum(tensor.numel() for tensor in tensors),)
    assert copy.nbytes == sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("num_tensors", [1, 2])
@pytest.mark.parametrize("is_inference", [False, True])
def test_a_copy_shares_no_memory_with_the_tensors(num_tensors: int, is_inference: bool) -> None:
    with torch.inference_mode(is_inference):
        tensors = [torch.ones(3) for _ in range(num_tensors)]
        copy = FlatCopy(tensors)
        for tensor in tensors:
            tensor.zero_()
    assert copy.array().all()


def test_tensors_of_several_types_are_returned_in_their_order() -> None:
    tensors = [torch.tensor([n], dtype=t) for n, t in enumerate([torch.int8, torch.half] * 3)]
    arrays = [snapshot.array() for snapshot in copied_together(tensors)]
    assert [array.item() for array in arrays] == [*range(6)]
    assert [array.dtype.name for array in arrays] == ["int8", "float16"] * 3
