# SPDX-License-Identifier: Apache-2.0
"""Checks that imports follow the order of layers: names each import that breaks the order or closes a circle.

It reads the syntax tree of every file. Imports inside functions count, and so do names of modules that a file loads lazily
with `import_module`. Imports under `if TYPE_CHECKING` are listed apart. `make lint` runs it; standard library only.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]

# Lowest first: a layer may import only the layers before it. A name is a folder or a module of sdk/bespoke. `bespoke` is its
# __init__, which only re-exports, and `bespoke_plugins` is all of plugins/bespoke_plugins.
LAYERS = (
    "version",
    "verbs",
    "remedies",
    "errors",
    "arguments",
    "format",
    "config",
    "rules",
    "plan",
    "ops",
    "model",
    "bundle",
    "system",
    "graph",
    "methods",
    "data",
    "tasks",
    "hookspecs",
    "contracts",
    "plugin_check",
    "plugins",
    "reference",
    "core",
    "delivery",
    "exports",
    "golden",
    "compiler",
    "personalizer",
    "examples",
    "conversation",
    "corrections",
    "engines",
    "participation",
    "answering",
    "personal_model",
    "federated_device",
    "federation_client",
    "federated_guidance",
    "bench",
    "testing",
    "plot",
    "doctor",
    "ui",
    "cli",
    "bespoke",
    "bespoke_plugins",
)

# Stricter than the order: the only modules that these may import in addition to their own and, in the sdk, the foundation.
FOUNDATION = {"version", "verbs", "remedies", "errors", "arguments", "format.plain_file", "config"}
MAY_IMPORT: dict[str, set[str]] = {
    "bespoke.format": set(),
    "bespoke.rules": set(),
    "bespoke.plan": {"format"},
    "bespoke.ops": {"format"},
    "bespoke.bundle": {"format", "model.architecture", "plan"},
    "bespoke.system": set(),
    "bespoke.data": set(),
    "bespoke.reference": {"bundle", "format", "ops", "plan", "rules"},
    "bespoke.core": {"ops", "rules", "system"},
    "bespoke_plugins": {"contracts", "errors", "graph", "methods", "ops", "plan"},  # what is documented for them
    "bespoke_plugins.targets.cuda.engine": {"core"},  # torch's engine, with kernels of its own
    "bespoke_plugins.targets.torch": {"core"},  # the engine of the core that it is
    "bespoke_plugins.targets.executorch.attention": {"model.layers"},  # recognises the attention there
    "bespoke_plugins.targets.executorch.run": {"core"},  # opens its artifacts with the core
}
# A vendor's package -> the only target that may import it.
VENDORS = {
    "executorch": "bespoke_plugins.targets.executorch",
    "coremltools": "bespoke_plugins.targets.coreml",
    "mlx": "bespoke_plugins.targets.mlx",
    "triton": "bespoke_plugins.targets.cuda",
}

Kind = Literal["top", "inside", "type"]  # runs at import, in a function, or for the type checker only


@dataclass(frozen=True)
class Import:
    """An import: line `line` of `path`, the file of `module`, imports the module `target`."""

    module: str
    path: str
    line: int
    target: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.path}:{self.line} -> {self.target}"


@dataclass(frozen=True)
class Report:
    files: int
    lines: int
    edges: int  # pairs of modules, the first of which imports the second; those for the type checker only do not count
    package_edges: int
    complaints: dict[str, list[str]]
    same_names: list[str]


def layer_of(module: str) -> str:
    """The entry of LAYERS that a module belongs to."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "bespoke" and rest else first


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def parents(module: str) -> Iterator[str]:
    while module := module.rpartition(".")[0]:
        yield module


# ---- reading ---------------------------------------------------------------------------------------------------------------


def source_files(root: Path) -> dict[str, Path]:
    """Dotted name of each module -> its file."""
    files = {}
    for folder, package in (("sdk", "bespoke"), ("plugins", "bespoke_plugins")):
        for path in sorted((root / folder / package).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def nodes(tree: ast.AST, kind: Kind = "top") -> Iterator[tuple[ast.AST, Kind]]:
    """Every node with the moment at which it runs: at import, inside a function, or for the type checker only."""
    for child in ast.iter_child_nodes(tree):
        yield child, kind
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from nodes(ast.Module(child.body, []), "type")
            yield from nodes(ast.Module(child.orelse, []), kind)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from nodes(child, "inside" if kind == "top" else kind)
        else:
            yield from nodes(child, kind)


def imports_of(module: str, path: Path, root: Path, modules: Mapping[str, Path]) -> Iterator[Import]:
    text = path.read_text(encoding="utf-8")
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    where = path.relative_to(root).as_posix()

    for node, kind in nodes(ast.parse(text, where)):
        if isinstance(node, ast.Import):
            yield from (Import(module, where, node.lineno, alias.name, kind) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            names = {f"{source}.{alias.name}" for alias in node.names}  # a submodule, or a name of module `source`
            targets = {name if name in modules else source for name in names}
            yield from (Import(module, where, node.lineno, target, kind) for target in sorted(targets))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in modules
            and "import_module" in text
        ):
            yield Import(module, where, node.lineno, node.value, "inside")


# ---- circles and ways ------------------------------------------------------------------------------------------------------


def reachable(start: str, following: Mapping[str, set[str]]) -> dict[str, str]:
    """Node that one or more steps reach -> the node before it on a shortest way."""
    before: dict[str, str] = {}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for there in sorted(following.get(here, set()) - before.keys()):
            before[there] = here
            queue.append(there)
    return before


def circles(edges: Mapping[tuple[str, str], Import]) -> list[str]:
    """Strongly connected parts of more than one node, each with its shortest circle."""
    following: dict[str, set[str]] = {}
    for start, end in edges:
        following.setdefault(start, set()).add(end)
    reached = {node: reachable(node, following) for node in sorted(following)}

    def around(node: str) -> list[str]:
        way = [node, reached[node][node]]
        while way[-1] != node:
            way.append(reached[node][way[-1]])
        return way[::-1]

    parts = {frozenset(b for b in reached[a] if a in reached.get(b, {})) for a in reached if a in reached[a]}
    descriptions = []
    for members in sorted(map(sorted, parts), key=lambda names: (-len(names), names)):
        shortest = min(map(around, members), key=len)
        steps = "\n".join(f"    {edges[pair]}" for pair in pairwise(shortest))
        descriptions.append(f"{len(members)}: {', '.join(members)}; the shortest is {' -> '.join(shortest)}\n{steps}")
    return descriptions


def ways_to(forbidden: str, barred: set[str], imports: Sequence[Import], *, parents_run: bool) -> Iterator[str]:
    """Imports that leave a package of `barred` and lead to `forbidden`, each with the rest of the shortest way.

    `parents_run`: importing a.b.c also runs a and a.b.
    """

    def reached(each: Import) -> list[str]:
        name = forbidden if is_within(each.target, forbidden) else each.target
        return [name, *parents(name)] if parents_run else [name]

    importers: dict[str, list[Import]] = {}
    for each in imports:
        for name in reached(each):
            importers.setdefault(name, []).append(each)
    ways: dict[str, list[Import]] = {forbidden: []}
    queue = deque([forbidden])
    while queue:
        here = queue.popleft()
        for each in importers.get(here, []):
            if each.module not in ways:
                ways[each.module] = [each, *ways[here]]
                queue.append(each.module)
    for each in imports:
        package = layer_of(each.module)
        onward = [ways[name] for name in reached(each) if name in ways and layer_of(name) != package]
        if package in barred and onward:
            rest = "".join(f", {step}" for step in min(onward, key=len))
            yield f"{each}{rest}  ({package} must do without {forbidden})"


# ---- the check -------------------------------------------------------------------------------------------------------------


def allowed(each: Import) -> bool:
    borders = [name for name in MAY_IMPORT if is_within(each.module, name)]
    own = {name.removeprefix("bespoke.") for name in borders if name.startswith("bespoke.")}
    names = own.union(*(MAY_IMPORT[name] for name in borders), FOUNDATION if own else ())
    return (
        not borders
        or not is_within(each.target, "bespoke")
        or any(is_within(each.target, f"bespoke.{name}") for name in names)
    )


def across_borders(imports: Sequence[Import], modules: Mapping[str, Path]) -> Iterator[str]:
    at_import = [each for each in imports if each.kind == "top"]
    at_any_time = [each for each in imports if each.kind != "type"]
    yield from ways_to("torch", {"plan", "bundle", "rules"}, at_import, parents_run=True)
    yield from ways_to("bespoke.compiler", {"runtime", "reference", "core"}, at_any_time, parents_run=False)
    plugins = {part for module in modules if is_within(module, "bespoke_plugins") for part in module.split(".")[2:3]}
    for each in imports:
        first, *rest = each.target.split(".")
        in_sdk = is_within(each.module, "bespoke")
        home = VENDORS.get(first, each.module)
        if not is_within(each.module, home):
            yield f"{each}  (a vendor's package: only {home} may import it)"
        if in_sdk and (first == "bespoke_plugins" or (first == "bespoke" and plugins & set(rest))):
            yield f"{each}  (the sdk imports no plugin)"
        if first in ("bespoke", "bespoke_plugins") and each.target not in modules:
            yield f"{each}  (there is no such module)"
        if not allowed(each):
            yield f"{each}  (not among what {each.module} may import)"


def check(root: Path, layers: Sequence[str] = LAYERS) -> Report:
    modules = source_files(root)
    imports = [each for module, path in modules.items() for each in imports_of(module, path, root, modules)]
    rank = {name: number for number, name in enumerate(layers)}
    unknown = sorted({layer_of(module) for module in modules} - rank.keys())

    upward: dict[bool, list[str]] = {False: [], True: []}  # for the type checker only?
    edges: dict[tuple[str, str], Import] = {}
    package_edges: dict[tuple[str, str], Import] = {}
    for each in imports:
        low, high = layer_of(each.module), layer_of(each.target)
        if each.target not in modules or each.target == each.module:
            continue
        if low in rank and high in rank and rank[high] > rank[low]:
            upward[each.kind == "type"].append(f"{each}  ({low} is below {high})")
        if each.kind != "type":
            edges.setdefault((each.module, each.target), each)
            if low != high:
                package_edges.setdefault((low, high), each)

    homes: dict[str, list[str]] = {}
    for module, path in modules.items():
        if is_within(module, "bespoke") and path.stem not in ("__init__", "__main__"):
            homes.setdefault(path.stem, []).append(module.removeprefix("bespoke."))

    return Report(
        files=len(modules),
        lines=sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules.values()),
        edges=len(edges),
        package_edges=len(package_edges),
        complaints={
            "not in the order of layers": unknown,
            "upward": upward[False],
            "type-only upward": upward[True],
            "circles of packages": circles(package_edges),
            "circles of modules": circles(edges),
            "across a border": list(across_borders(imports, modules)),
        },
        same_names=[f"{name}: {', '.join(modules)}" for name, modules in sorted(homes.items()) if len(modules) > 1],
    )


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--layers", type=Path, metavar="FILE", help="names in order, lowest first, in place of this file's"
    )
    order = parser.parse_args(arguments).layers
    report = check(root, order.read_text(encoding="utf-8").split() if order else LAYERS)
    print(
        f"{report.files} files, {report.lines} lines; edges: {report.edges} of modules, {report.package_edges} of packages"
    )
    print(*(f"{title}: {len(complaints)}" for title, complaints in report.complaints.items()), sep="; ")
    print(f"one name in several packages (no error): {len(report.same_names)}", *report.same_names, sep="\n  ")
    for title, complaints in report.complaints.items():
        if complaints:
            print(f"\n{title}:", *complaints, sep="\n  ", file=sys.stderr)
    return 1 if any(report.complaints.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
