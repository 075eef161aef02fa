"""Statistics are taken in at least float32, whatever the dtype of the model."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def widened(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half-precision tensors as float32, others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
