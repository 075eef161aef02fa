"""Names of nodes and edges, read from a circuit.json and said the way people say them.

Writers are `input`, `a{layer}.h{head}`, `m{layer}`; readers `a{layer}.h{head}<q>`, `a{layer}.g{group}<k>`, `a{layer}<x>`,
`m{layer}`, `logits`. A key or value reader belongs to a group of query heads (`g`) or, in an ungrouped circuit, to one head
(`h`); `<x>` is the one reader of a mixer that does not read queries, keys and values apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .page import ViewError

_NAME = re.compile(r"(?:(input|logits)|m(\d+)|a(\d+)\.([hg])(\d+)(?:<([qkv])>)?|a(\d+)(?:<(x)>)?)\Z")


@dataclass(frozen=True)
class Name:
    """One end of an edge. kind: input, logits, mlp, head, group, mixer; index: the head's or group's; port: q, k, v, x or ''."""

    kind: str
    layer: int = -1
    index: int = 0
    port: str = ""

    @property
    def node(self) -> str:
        """The node this end belongs to, without the port: `a1.h2` of `a1.h2<q>`."""
        match self.kind:
            case "head":
                return f"a{self.layer}.h{self.index}"
            case "group":
                return f"a{self.layer}.g{self.index}"
            case "mixer":
                return f"a{self.layer}"
            case "mlp":
                return f"m{self.layer}"
        return self.kind

    @property
    def title(self) -> str:
        """The node as people write it: L18H6, MLP18, L18 KV2, input, logits."""
        match self.kind:
            case "head":
                return f"L{self.layer}H{self.index}"
            case "group":
                return f"L{self.layer} KV{self.index}"
            case "mixer":
                return f"L{self.layer} mixer"
            case "mlp":
                return f"MLP{self.layer}"
        return self.kind


def parse_name(text: str) -> Name:
    """Reads one name. Raises ViewError for anything outside the vocabulary."""
    match = _NAME.match(text)
    if match is None:
        raise ViewError(
            f"circuit name {text!r} is not a node or reader; wanted input, logits, m3, a3.h1, a3.h1<q>, a3.g0<k>, a3.g0<v> or "
            "a3<x>."
        )
    end, mlp, layer, letter, index, port, mixer, whole = match.groups()
    if end:
        return Name(end)
    if mlp:
        return Name("mlp", int(mlp))
    if mixer:
        return Name("mixer", int(mixer), 0, whole or "")
    return Name("head" if letter == "h" else "group", int(layer), int(index), port or "")


def parse_edge(text: str) -> tuple[Name, Name]:
    """Reads `writer->reader`. Raises ViewError where the name has no arrow or an end that cannot be that end."""
    writer_text, arrow, reader_text = text.partition("->")
    if not arrow:
        raise ViewError(f"edge {text!r} has no '->'; wanted writer->reader, such as 'a0.h3->a1.g0<k>'.")
    writer, reader = parse_name(writer_text), parse_name(reader_text)
    if writer.kind in ("logits", "group", "mixer") or writer.port:
        raise ViewError(f"edge {text!r} starts at {writer_text!r}, which writes nothing; wanted input, m3 or a3.h1.")
    attention = reader.kind in ("head", "group", "mixer")
    if reader.kind == "input" or attention and not reader.port:
        raise ViewError(f"edge {text!r} ends at {reader_text!r}, which reads nothing; wanted logits, m3, a3.h1<q> or a3.g0<k>.")
    return writer, reader


def role_of(label: str) -> str:
    """The kind of head a label speaks of: 'induction' of 'induction 0.90', 'previous token' of 'previous-token'."""
    words = re.split(r"[,;]|\s-?[\d.]+", label.strip().lower())
    return re.sub(r"[_-]", " ", words[0]).strip()


ROLES = ("induction", "previous token", "duplicate token", "first token", "prefix matching", "positional", "anti induction")


def role_class(role: str) -> str:
    """The CSS class that colours a role: fixed for the common ones, one of the last three by its letters for others."""
    if role in ROLES:
        return f"role-{ROLES.index(role)}"
    return f"role-{len(ROLES) - 3 + sum(map(ord, role)) % 3}"
