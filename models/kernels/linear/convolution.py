"""The short causal convolution that recurrent layers put between a projection and their queries, keys and values."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

Channels = Float[Tensor, "batch pos channel"]
Past = Float[Tensor, "batch width_less_one channel"]


def short_convolution(
    x: Channels,
    weight: Float[Tensor, "channel width"],
    bias: Float[Tensor, " channel"] | None = None,
    past: Past | None = None,
    real: Bool[Tensor, "batch pos"] | None = None,
) -> tuple[Channels, Past]:
    """y_t = bias + sum_s weight[:, width - 1 - s] x_{t-s}, each channel on its own; and the last width - 1 inputs.

    past: the inputs before the first, as an earlier call returned them; zeros where there are none.
    real: which inputs are tokens. Padding is left out, so that a token meets those before it wherever padding lies; its own
        output is 0.
    """
    width = weight.shape[1]
    past = x.new_zeros(x.shape[0], width - 1, x.shape[2]) if past is None else past.to(x.dtype)
    inputs = torch.cat((past, x), 1)
    if real is None:
        return _convolved(inputs, weight, bias), inputs[:, x.shape[1] :]
    counts = F.pad(real, (width - 1, 0), value=True)
    order = counts.long().argsort(dim=1, stable=True)  # padding first, then everything else in its order
    packed = inputs.masked_fill(~counts[..., None], 0.0).gather(1, _channels(order, x))
    places = (order.argsort(dim=1)[:, width - 1 :] - (width - 1)).clamp(min=0)
    y = _convolved(packed, weight, bias).gather(1, _channels(places, x))
    return y.masked_fill(~real[..., None], 0.0), packed[:, x.shape[1] :]


def _convolved(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.conv1d(inputs.mT, weight[:, None], bias, groups=weight.shape[0]).mT


def _channels(index: Tensor, x: Channels) -> Tensor:
    return index[..., None].expand(-1, -1, x.shape[2])
