# SPDX-License-Identifier: Apache-2.0
"""What Gradle's manifest merger does, as far as the libraries here need it.

Elements are joined by tag and android:name, the app's win, and so do its attributes; ${applicationId} is filled in; what the app
marks tools:node="remove" goes. Native libraries are loaded out of the APK, as Gradle sets it from API 23 on.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

ANDROID, TOOLS = "{http://schemas.android.com/apk/res/android}", "{http://schemas.android.com/tools}"

Element = ElementTree.Element


def merged(app: Path, libraries: Sequence[Path]) -> ElementTree.ElementTree:
    ElementTree.register_namespace("android", ANDROID[1:-1])
    tree = ElementTree.parse(app)
    root = tree.getroot()
    for library in libraries:
        _merge(root, ElementTree.parse(library).getroot())
    for application in root.iter("application"):
        application.attrib.setdefault(ANDROID + "extractNativeLibs", "false")
    for parent in root.iter():
        for child in [one for one in parent if one.get(TOOLS + "node") == "remove"]:
            parent.remove(child)
    for element in root.iter():
        kept = {name: value for name, value in element.attrib.items() if not name.startswith(TOOLS)}
        element.attrib.clear()
        element.attrib.update(
            {name: value.replace("${applicationId}", root.get("package", "")) for name, value in kept.items()}
        )
    return tree


def package_of(manifest: Path) -> str:
    return ElementTree.parse(manifest).getroot().get("package", "")


def _key(element: Element) -> tuple[str, str | None]:
    return element.tag, None if element.tag == "application" else element.get(ANDROID + "name")


def _merge(into: Element, other: Element) -> None:
    known = {_key(child): child for child in into}
    for child in other:
        if child.tag == "uses-sdk":
            continue
        twin = known.get(_key(child))
        if twin is None:
            into.append(child)
            known[_key(child)] = child
        else:
            _merge(twin, child)
    if into.tag != "manifest":
        for name, value in other.attrib.items():
            into.attrib.setdefault(name, value)
