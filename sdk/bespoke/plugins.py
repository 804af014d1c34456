# SPDX-License-Identifier: Apache-2.0
"""Finds plugins by name. An entry point of group "bespoke" is named after the plugin it provides.

A lookup therefore imports one module, and a broken plugin affects only itself. A module may register more plugins. For a name that
no entry point has, all modules are imported.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, overload

import pluggy

from bespoke import hookspecs
from bespoke.errors import EXTRAS, MissingDependency, PluginError

if TYPE_CHECKING:
    from bespoke.contracts import Optimizer, Target

Kind = Literal["optimizer", "target", "command"]
GROUP = "bespoke"
OURS = "bespoke-sdk"


@dataclass(frozen=True)
class Installed:
    """An entry point, with the plugins that it provides or the reason why it does not import."""

    name: str
    package: str
    version: str
    module: str
    provides: tuple[str, ...]  # kind and name of each
    problem: str | None


@overload
def get(kind: Literal["optimizer"], name: str) -> Optimizer: ...
@overload
def get(kind: Literal["target"], name: str) -> Target: ...
@overload
def get(kind: Kind, name: str) -> Any: ...
def get(kind: Kind, name: str) -> Any:
    """Returns the plugin of this kind and name. Where an entry point has that name, nothing else is imported."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    named = [entry for entry in entries if entry.name == name]
    if named:
        _refuse_two(kind, name, named)
        for plugin in _load(named[0], kind):
            if plugin.name == name:
                return plugin

    names: dict[str, list[EntryPoint]] = {}
    match = None
    for entry in entries:
        try:
            for plugin in _load(entry, kind):
                names.setdefault(plugin.name, []).append(entry)
                match = plugin if plugin.name == name else match
        except PluginError:
            continue  # it affects only itself; `bespoke plugins` reports it
    if match is not None:
        _refuse_two(kind, name, names[name])
        return match

    near = difflib.get_close_matches(name, names, 1)
    raise PluginError(
        f"{kind} '{name}'",
        got="no plugin of that name",
        expected=f"one of the installed {kind}s: {', '.join(sorted(names)) or 'none'}",
        next_step=f"Did you mean '{near[0]}'?" if near else f"Install the package that provides the {kind} '{name}'",
    )


def _refuse_two(kind: Kind, name: str, entries: list[EntryPoint]) -> None:
    packages = sorted(entry.dist.name if entry.dist else "?" for entry in entries)
    if len(packages) > 1:
        raise PluginError(
            f"{kind} '{name}'",
            got=f"{len(packages)} packages that provide it: {', '.join(packages)}",
            expected="one",
            next_step=f"Uninstall one of them: pip uninstall {packages[-1]}",
        )


def installed() -> list[Installed]:
    """Imports every entry point, one by one. Returns each with its own problem, if it has one."""
    entries = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        package, version = (entry.dist.name, entry.dist.version) if entry.dist else ("?", "?")
        provides: list[str] = []
        problem = None
        try:
            for kind in ("optimizer", "target", "command"):
                provides += [f"{kind} {plugin.name}" for plugin in _load(entry, kind)]
        except (PluginError, MissingDependency) as error:
            problem = str(error)
        entries.append(Installed(entry.name, package, version, entry.value, tuple(provides), problem))
    return entries


def commands() -> list[Any]:
    """Returns the click commands of plugins whose entry point is named `command-...`. Imports no other plugins."""
    provided = []
    for entry in entry_points(group=GROUP):
        if entry.name.startswith("command-"):
            try:
                provided += _load(entry, "command")
            except (PluginError, MissingDependency):
                continue  # `bespoke plugins` reports it; the command line must start
    return provided


def _load(entry: EntryPoint, kind: Kind) -> list[Any]:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    registered: list[Any] = []
    package = entry.dist.name if entry.dist else entry.name
    try:
        manager.register(entry.load(), entry.name)
        manager.check_pending()
        getattr(manager.hook, f"register_{kind}s")(register=registered.append)
    except ModuleNotFoundError as error:
        if entry.dist is None or entry.dist.name != OURS or error.name not in EXTRAS:
            raise _broken(entry, package, error) from error
        raise MissingDependency.of(f"{kind} '{entry.name}'", error.name, EXTRAS[error.name]) from None
    except (Exception, SystemExit) as error:  # a module that leaves the program must not take the command line with it
        raise _broken(entry, package, error) from error
    for plugin in registered:
        _check(plugin, kind, package)
    return registered


def _broken(entry: EntryPoint, package: str, error: BaseException) -> PluginError:
    return PluginError(
        f"Plugin '{entry.name}' of package '{package}'",
        got=f"{type(error).__name__} on import: {error}",
        expected=f"the module '{entry.value}' to import and to implement bespoke's hooks",
        next_step=f"Reinstall or remove it: pip uninstall {package}",
    )


def _check(plugin: Any, kind: Kind, package: str) -> None:
    """Raises PluginError for what the contract suite rejects without running the plugin."""
    if kind == "command":
        named = isinstance(getattr(plugin, "name", None), str)
        problem = (
            None if named else ("no name", "a click command, which has one", "Register what @click.command() gives")
        )
    else:
        from bespoke.plugin_check import problem_of  # a plugin of these kinds has imported it

        problem = problem_of(plugin, kind)
    if problem is not None:
        got, expected, next_step = problem
        name = getattr(plugin, "name", None)
        called = f"'{name}'" if isinstance(name, str) and name.isprintable() else type(plugin).__name__
        raise PluginError(
            f"{kind} {called} of package '{package}'",
            got=got,
            expected=expected,
            next_step=f"{next_step}; run the contract suite of bespoke.testing",
        )
