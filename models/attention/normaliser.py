"""What every normaliser has; `models.attention.normalisers` lists them."""

from __future__ import annotations

from ..hooked import Part


class Normaliser(Part):
    """What turns a row of scores into weights. `fusable`: it is the plain softmax, which fused kernels compute."""

    fusable = False
