"""Circuits as files and objects that other programs read: networkx, GraphML, node-link JSON, DOT, and the MIB benchmark's JSON.

Every exporter is a pure function of scores and a circuit; every writer replaces its file in one step.
"""

from __future__ import annotations

from .dot import to_dot as to_dot
from .dot import write_dot as write_dot
from .graphml import read_graphml as read_graphml
from .graphml import write_graphml as write_graphml
from .mib import from_mib as from_mib
from .mib import read_mib as read_mib
from .mib import to_mib as to_mib
from .mib import write_mib as write_mib
from .networkx_graph import from_networkx as from_networkx
from .networkx_graph import to_networkx as to_networkx
from .node_link import from_node_link as from_node_link
from .node_link import read_node_link as read_node_link
from .node_link import to_node_link as to_node_link
from .node_link import write_node_link as write_node_link
from .scored import ScoredCircuit as ScoredCircuit

__all__ = [
    "ScoredCircuit",
    "from_mib",
    "from_networkx",
    "from_node_link",
    "read_graphml",
    "read_mib",
    "read_node_link",
    "to_dot",
    "to_mib",
    "to_networkx",
    "to_node_link",
    "write_dot",
    "write_graphml",
    "write_mib",
    "write_node_link",
]
