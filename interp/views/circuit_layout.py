"""Where everything of a circuit stands: layers from the input at the bottom to the logits at the top, heads side by side.

    [            logits            ]
    | L1H0 | | L1H1 |   . (H2, unused)     | MLP1 |      a box per node; writers send from its top
    [q]      [q]                           [in]          a port per reader; edges end at its bottom
    [ k           |            v          ]              one strip per key/value group, as wide as its heads
    [            input             ]

Where every head has its own keys and values the three ports sit side by side under the box. A mixer with one reader has one
strip under all its heads. Layers without a node in the circuit shrink to a line. Units are CSS pixels at zoom 1; x grows to
the right, y downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .circuit_data import CircuitData
from .names import Name

BOX, PORT, GAP, WIDEST = 32.0, 11.0, 3.0, 220.0
BAR, MARGIN, EMPTY_LAYER = 30.0, 26.0, 9.0
ASPECT = 1.35
"""Width over height that the drawing aims at: that of a screen beside a panel."""


@dataclass(frozen=True)
class Box:
    """A rectangle: left, top, width, height."""

    x: float
    y: float
    w: float
    h: float

    @property
    def bottom(self) -> float:
        return self.y + self.h


@dataclass(frozen=True)
class Port:
    """The place where edges into one reader end. shared: it belongs to a group of heads and not to one."""

    reader: Name
    box: Box
    shared: bool


@dataclass(frozen=True)
class Band:
    """The strip of the drawing that one layer occupies."""

    layer: int
    top: float
    bottom: float
    used: bool


@dataclass(frozen=True)
class Layout:
    """Boxes of nodes, ports of readers and bands of layers. column: the width of one head's column."""

    width: float
    height: float
    column: float
    nodes: dict[str, tuple[Name, Box]] = field(default_factory=dict)
    ports: dict[Name, Port] = field(default_factory=dict)
    groups: dict[str, tuple[Name, Box]] = field(default_factory=dict)
    bands: tuple[Band, ...] = ()
    unused: tuple[tuple[float, float], ...] = ()
    """Centres of heads outside the circuit, in layers that have a node in it."""


def lay_out(data: CircuitData) -> Layout:
    """Places every node and reader of the circuit."""
    used = {name.layer for name in data.nodes if name.layer >= 0}
    block = BOX + PORT + (GAP + PORT if any(layer.groups for layer in data.shape) else 0)
    pitch = min(max(700 / max(len(used), 1), block + 26), 190.0)
    raised = any(layer.mlp and not layer.parallel for layer in data.shape)
    top = MARGIN + BAR + (BOX / 2 if _has_mlps(data) and raised else 0)
    height = top + len(used) * pitch + (data.n_layers - len(used)) * EMPTY_LAYER + BAR + MARGIN
    columns = data.n_heads + (1.15 if _has_mlps(data) else 0)
    column = min(max(height * ASPECT / columns, 76.0), 270.0)
    layout = Layout(column * columns + 2 * MARGIN, height, column)
    bands = _bands(data.n_layers, used, pitch, height - MARGIN - BAR)
    for band in bands:
        if band.used:
            _place_heads(layout, data, band, block)
            _place_mlp(layout, data, band, block)
    _place_bars(layout, data)
    unused = tuple(_unused(layout, data, bands, block))
    return Layout(layout.width, height, column, layout.nodes, layout.ports, layout.groups, bands, unused)


def _has_mlps(data: CircuitData) -> bool:
    return any(name.kind == "mlp" for name in data.nodes)


def _bands(n_layers: int, used: set[int], pitch: float, bottom: float) -> tuple[Band, ...]:
    bands = []
    for layer in range(n_layers):
        top = bottom - (pitch if layer in used else EMPTY_LAYER)
        bands.append(Band(layer, top, bottom, layer in used))
        bottom = top
    return tuple(bands)


def _head_box(layout: Layout, data: CircuitData, band: Band, head: int, block: float) -> Box:
    width = min(layout.column * 0.82, WIDEST)
    middle = MARGIN + layout.column * (head + 0.5)
    return Box(middle - width / 2, _block_top(band, block), width, BOX)


def _block_top(band: Band, block: float) -> float:
    """Half the free space of a band below its blocks, half above."""
    return band.bottom - (band.bottom - band.top - block) / 2 - block


def _place_heads(layout: Layout, data: CircuitData, band: Band, block: float) -> None:
    shape = data.shape[band.layer]
    for head in range(shape.n_heads):
        name = Name("head", band.layer, head)
        if name not in data.nodes:
            continue
        box = _head_box(layout, data, band, head, block)
        layout.nodes[name.node] = (name, box)
        _place_ports(layout, name, box, shape.own, box.bottom)
    for group in range(len(shape.groups)):
        _place_group(layout, data, band, group, block)


def _place_group(layout: Layout, data: CircuitData, band: Band, group: int, block: float) -> None:
    """A strip under all heads of the group, where one of them or the group itself is in the circuit."""
    shape = data.shape[band.layer]
    heads, name = shape.groups[group], shape.name_of(band.layer, group)
    if name not in data.nodes and not any(Name("head", band.layer, head) in data.nodes for head in heads):
        return
    left = _head_box(layout, data, band, heads[0], block)
    right = _head_box(layout, data, band, heads[-1], block)
    box = Box(left.x, left.bottom + (PORT + GAP if shape.own else 0), right.x + right.w - left.x, PORT)
    layout.groups[name.node] = (name, box)
    _place_ports(layout, name, box, shape.shared, box.y)


def _place_ports(layout: Layout, name: Name, box: Box, letters: tuple[str, ...], top: float) -> None:
    """Divides the width of `box` evenly among the readers of a node."""
    width = box.w / max(len(letters), 1)
    for place, letter in enumerate(letters):
        reader = Name(name.kind, name.layer, name.index, letter)
        layout.ports[reader] = Port(reader, Box(box.x + place * width, top, width, PORT), name.kind in ("group", "mixer"))


def _place_mlp(layout: Layout, data: CircuitData, band: Band, block: float) -> None:
    """Right of the heads; higher than they are where it reads what they wrote, level with them in parallel blocks."""
    name = Name("mlp", band.layer)
    if name not in data.nodes:
        return
    width = min(layout.column * 0.82, WIDEST)
    middle = MARGIN + layout.column * (data.n_heads + 0.65)
    raised = 0 if data.shape[band.layer].parallel else BOX / 2
    box = Box(middle - width / 2, _block_top(band, block) - raised, width, BOX)
    layout.nodes[name.node] = (name, box)
    _place_ports(layout, name, box, ("",), box.bottom)


def _place_bars(layout: Layout, data: CircuitData) -> None:
    """Input and logits touch every column, so they are as wide as the drawing."""
    width = layout.width - 2 * MARGIN
    source, target = Name("input"), Name("logits")
    layout.nodes["input"] = (source, Box(MARGIN, layout.height - MARGIN - BAR, width, BAR))
    layout.nodes["logits"] = (target, Box(MARGIN, MARGIN, width, BAR))
    layout.ports[target] = Port(target, Box(MARGIN, MARGIN + BAR, width, 0.0), shared=False)


def _unused(layout: Layout, data: CircuitData, bands: tuple[Band, ...], block: float) -> list[tuple[float, float]]:
    points = []
    for band in bands:
        for head in range(data.shape[band.layer].n_heads if band.used else 0):
            if Name("head", band.layer, head) not in data.nodes:
                box = _head_box(layout, data, band, head, block)
                points.append((box.x + box.w / 2, box.y + BOX / 2))
    return points
