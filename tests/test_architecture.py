"""The promises of the layout, kept by reading the source: who imports whom, size of files and functions, no pickle, no network.

Each check is a function from a source to a list of complaints. It is run on every file, and on pieces of offending source
that it must reject.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("models", "interp", "analyses")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_MEDIAN_FUNCTION_LINES = 15

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the project's root, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


Check = Callable[[Source], list[str]]


@dataclass(frozen=True)
class Imports:
    """Top-level names, besides the standard library's, that a package may import: while it is imported itself, or later."""

    at_import: frozenset[str]
    when_used: frozenset[str] = frozenset()


TENSORS = frozenset({"torch", "numpy", "jaxtyping"})
OPTIONAL = frozenset({"networkx", "pandas", "tqdm", "rich", "safetensors", "matplotlib", "IPython"})
OTHER_TOOLKITS = frozenset({"transformers", "transformer_lens"})
ALLOWED = {
    "models": Imports(TENSORS | {"safetensors"}, frozenset({"tokenizers", "gguf", "tqdm"})),
    "interp": Imports(TENSORS | {"interp"}, OPTIONAL | OTHER_TOOLKITS | {"models"}),
    "analyses": Imports(TENSORS | {"models", "interp", "analyses"}, OPTIONAL | OTHER_TOOLKITS | {"gguf"}),
}
NO_TORCH = ("models/config.py", "models/errors.py")
UNSAFE_MODULES = ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib")
UNSAFE_CALLS = ("eval", "exec", "builtins.eval", "builtins.exec", "torch.load", "torch.save", "torch.hub.load")
NETWORK_MODULES = ("socket", "urllib.request", "http", "ftplib", "requests", "httpx", "aiohttp")


def sources(*folders: str) -> list[Source]:
    files = sorted(file for folder in folders for file in (PROJECT / folder).rglob("*.py"))
    return [Source(file.relative_to(PROJECT).as_posix(), file.read_text(encoding="utf8")) for file in files]


def imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Each absolute import as (dotted name, line, whether it runs when the module is imported)."""

    def walk(node: ast.AST, at_import: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno, at_import) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.level == 0:
                yield from ((f"{child.module}.{alias.name}", child.lineno, at_import) for alias in child.names)
            else:
                yield from walk(child, at_import and not is_deferred(child))

    return walk(tree, True)


def is_deferred(node: ast.AST) -> bool:
    """Whether what is below this node does not run at import: a function, or an `if TYPE_CHECKING:`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(node: FunctionNode) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


# --- the checks ----------------------------------------------------------------------------------------------------------


def check_import_rules(source: Source) -> list[str]:
    rule = ALLOWED[source.path.split("/")[0]]
    complaints = []
    for name, line, at_import in imports(source.tree):
        top = name.split(".")[0]
        allowed = rule.at_import if at_import else rule.at_import | rule.when_used
        if top not in allowed and top not in sys.stdlib_module_names:
            when = "at import" if at_import else "even when used"
            complaints.append(f"{source.path}:{line} may not import {name} {when}")
    return complaints


def check_config_needs_no_torch(source: Source) -> list[str]:
    if source.path not in NO_TORCH:
        return []
    foreign = [(name, line) for name, line, _ in imports(source.tree) if name.split(".")[0] not in sys.stdlib_module_names]
    return [f"{source.path}:{line} may not import {name}" for name, line in foreign]


def check_no_pickle_or_network(source: Source) -> list[str]:
    banned = tuple(f"{module}." for module in UNSAFE_MODULES + NETWORK_MODULES)
    found = [(line, f"imports {name}") for name, line, _ in imports(source.tree) if f"{name}.".startswith(banned)]
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in UNSAFE_CALLS:
            found.append((node.lineno, f"calls {called}"))
        if any(k.arg in ("allow_pickle", "trust_remote_code") and ast.unparse(k.value) != "False" for k in node.keywords):
            found.append((node.lineno, f"lets {called} run code from a file"))
    return [f"{source.path}:{line} {what}" for line, what in found]


def check_sizes(source: Source) -> list[str]:
    n_lines = len(source.text.splitlines())
    complaints = [f"{source.path} has {n_lines} lines"] if n_lines > MAX_FILE_LINES else []
    long = [node for node in functions(source.tree) if length(node) > MAX_FUNCTION_LINES]
    return complaints + [f"{source.path}:{node.lineno} {node.name} has {length(node)} lines" for node in long]


def check_documented(source: Source) -> list[str]:
    """Modules, and the public classes and functions at their top level."""
    tree = source.tree
    public = [node for node in tree.body if isinstance(node, ast.ClassDef | FunctionNode) and not node.name.startswith("_")]
    undocumented = [] if ast.get_docstring(tree) or not tree.body else [f"{source.path} itself"]
    undocumented += [f"{source.path}:{node.lineno} {node.name}" for node in public if not documented(node)]
    return [f"{where} has no docstring" for where in undocumented]


def documented(node: ast.ClassDef | FunctionNode) -> bool:
    """An overload is documented where the function itself is."""
    return bool(ast.get_docstring(node)) or any(ast.unparse(d).endswith("overload") for d in node.decorator_list)


def remote_references(text: str) -> list[str]:
    """What in a page or script could reach a network. Names of XML namespaces look like addresses but are never fetched."""
    text = re.sub(r"https?://www\.w3\.org/(?:1999|2000)/[a-z]+", "", text)
    pattern = r"https?://\S*|wss?://\S*|[\"'(=]\s*//[\w.-]+\.\w+|\bfetch\s*\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|\bimport\s*\("
    return re.findall(pattern, text)


CHECKS: list[Check] = [
    check_import_rules,
    check_config_needs_no_torch,
    check_no_pickle_or_network,
    check_sizes,
    check_documented,
]


# --- the checks on this project -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("package", PACKAGES)
def test_package_keeps(package: str, check: Check):
    complaints = [complaint for source in sources(package) for complaint in check(source)]
    assert not complaints, "\n".join(complaints)


def test_tests_are_of_readable_size():
    complaints = [complaint for source in sources("tests") for complaint in check_sizes(source)]
    assert not complaints, "\n".join(complaints)


def test_functions_are_short_on_the_whole():
    lengths = [length(node) for source in sources(*PACKAGES) for node in functions(source.tree)]
    assert statistics.median(lengths) <= MAX_MEDIAN_FUNCTION_LINES


def test_shapes_in_annotations_are_enforced_here():
    from models.kernels.reference import dot_products

    q, k = torch.zeros(1, 3, 4, 8), torch.zeros(1, 3, 2, 8)
    assert dot_products(q, k).shape == (1, 4, 3, 3)
    with pytest.raises(TypeCheckError):
        dot_products(q, k[0])
    with pytest.raises(TypeCheckError):
        dot_products(q, k[..., :5])


def test_pages_reach_no_network():
    static = PROJECT / "interp" / "views" / "static"
    files = [file for file in static.rglob("*") if file.suffix in (".js", ".css", ".html", ".svg")]
    assert files, f"no scripts or styles in {static}"
    complaints = [f"{file.name}: {found}" for file in files for found in remote_references(file.read_text(encoding="utf8"))]
    assert not complaints, "\n".join(complaints)


def test_page_templates_in_python_reach_no_network():
    complaints = []
    for source in sources("interp/views", "interp/export", "analyses"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                complaints += [f"{source.path}:{node.lineno} {found}" for found in remote_references(node.value)]
    assert not complaints, "\n".join(complaints)


# --- the checks on source that breaks each rule ---------------------------------------------------------------------------

LATE = "def f():\n    {}\n"
OFFENCES = [
    (check_import_rules, "models/x.py", "import interp"),
    (check_import_rules, "models/x.py", LATE.format("from interp.heads import scores")),
    (check_import_rules, "models/x.py", LATE.format("import analyses")),
    (check_import_rules, "models/x.py", "from models.config import TransformerConfig"),
    (check_import_rules, "models/x.py", "import tokenizers"),
    (check_import_rules, "models/x.py", "try:\n    import gguf\nexcept ImportError:\n    gguf = None"),
    (check_import_rules, "models/x.py", LATE.format("import transformers")),
    (check_import_rules, "interp/x.py", "from models import load_model"),
    (check_import_rules, "interp/x.py", "class C:\n    import models"),
    (check_import_rules, "interp/x.py", "import transformer_lens"),
    (check_import_rules, "interp/x.py", "import networkx as nx"),
    (check_import_rules, "interp/x.py", LATE.format("import analyses.report")),
    (check_import_rules, "interp/x.py", LATE.format("import tests.conftest")),
    (check_import_rules, "analyses/x.py", "import transformers"),
    (check_import_rules, "analyses/x.py", LATE.format("import sklearn")),
    (check_config_needs_no_torch, "models/config.py", LATE.format("import torch")),
    (check_no_pickle_or_network, "models/x.py", "import pickle"),
    (check_no_pickle_or_network, "models/x.py", LATE.format("from urllib.request import urlopen")),
    (check_no_pickle_or_network, "models/x.py", "import socket as s"),
    (check_no_pickle_or_network, "models/x.py", LATE.format("return torch.load('weights.pt')")),
    (check_no_pickle_or_network, "models/x.py", LATE.format("return np.load(file, allow_pickle=True)")),
    (check_no_pickle_or_network, "interp/x.py", LATE.format("return eval(name)")),
    (check_no_pickle_or_network, "interp/x.py", "exec('a = 1')"),
    (check_sizes, "interp/x.py", "a = 1\n" * 401),
    (check_sizes, "interp/x.py", "def f():\n" + "    a = 1\n" * 60),
    (check_documented, "interp/x.py", "a = 1"),
    (check_documented, "interp/x.py", '"""Module."""\ndef f(): pass'),
    (check_documented, "interp/x.py", '"""Module."""\nclass C:\n    def f(self): pass'),
]


@pytest.mark.parametrize(("check", "path", "text"), OFFENCES)
def test_offence_is_found(check: Check, path: str, text: str):
    assert len(check(Source(path, text))) == 1


BLAMELESS = [
    (check_import_rules, "models/x.py", "import math\nimport torch\nfrom .config import TransformerConfig"),
    (check_import_rules, "models/x.py", LATE.format("from gguf import GGUFReader")),
    (check_import_rules, "interp/x.py", LATE.format("from models import load_model")),
    (check_import_rules, "interp/x.py", "if TYPE_CHECKING:\n    import pandas as pd"),
    (check_import_rules, "analyses/x.py", "from models import load_model\nimport interp"),
    (check_config_needs_no_torch, "models/config.py", "import json\nfrom .errors import ConfigError"),
    (check_no_pickle_or_network, "models/x.py", "model.eval()\nsafe_load(file)\nimport urllib.parse\nimport html"),
    (check_no_pickle_or_network, "models/x.py", "np.load(file, allow_pickle=False)"),
    (check_sizes, "interp/x.py", "def f():\n" + "    a = 1\n" * 59),
    (check_documented, "interp/x.py", '"""Module."""\ndef _f(): pass\nclass _C:\n    def f(self): pass'),
]


@pytest.mark.parametrize(("check", "path", "text"), BLAMELESS)
def test_blameless_source_passes(check: Check, path: str, text: str):
    assert check(Source(path, text)) == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js">',
        "@import url(//fonts.example.org/a.css)",
        "fetch('data.json')",
        "new WebSocket(a)",
    ],
)
def test_remote_reference_is_found(text: str):
    assert remote_references(text)


def test_a_namespace_is_no_remote_reference():
    assert remote_references('<svg xmlns="http://www.w3.org/2000/svg"> a = b // c; // a comment') == []
