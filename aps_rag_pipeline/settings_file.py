"""Setting one value in `facility.yaml` as a person would: everything else stays as it stands, comments included.

The place is found by the parser's own marks, and what came out is parsed again before anything is written: a file in
which the value cannot be set without moving another (an alias, a merge) is refused.
"""

from __future__ import annotations

import copy
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from aps_rag_pipeline.settings import CONFIG_VARIABLE, DEFAULT_CONFIG, Settings, SettingsError


def settings_path(path: str | Path | None = None) -> Path:
    """The file that `Settings.load` reads for the same argument."""
    return Path(path or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG).expanduser().absolute()


def with_value(file: Path, place: Sequence[str], value: str) -> Settings:
    """The settings that `file` would give with `value` at `place` (names from the top level on). Writes nothing.

    Raises:
        SettingsError: the value could not be set, not be written, or would not be in force.
    """
    _demand_writable(file)
    text = _edited(file, _read(file), place, value)
    settings = Settings.build(yaml.safe_load(text), file)
    found: Any = settings
    for name in place:
        found = getattr(found, name)
    if str(found) != value:
        variable = "APS_RAG_" + "__".join(place).upper()
        raise SettingsError(
            f"{'.'.join(place)} would stay {str(found)!r} whatever {file.name} says: the environment stands above the "
            f"file; unset {variable} (or set it to {value!r} everywhere the pipeline runs and leave the file alone)"
        )
    return settings


def set_value(file: Path, place: Sequence[str], value: str) -> bool:
    """Set a value in the file, whole or not at all, with the same mode; False when it stands there already.

    Raises:
        SettingsError: the value could not be set or not be written; the file is as it was.
    """
    _demand_writable(file)
    old = _read(file)
    new = _edited(file, old, place, value)
    if new == old:
        return False
    target = file.resolve()  # a link stays a link
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(new.encode())
            stream.flush()
            os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))
            os.fsync(stream.fileno())
        os.replace(draft, target)
    except OSError as error:
        Path(draft).unlink(missing_ok=True)
        raise SettingsError(f"{file}: cannot be written ({error})") from error
    return True


def _demand_writable(file: Path) -> None:
    target = file.resolve()
    try:
        open_to_somebody = target.stat().st_mode & 0o222
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror})") from error
    if not (open_to_somebody and os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)):
        raise SettingsError(f"{file}: is not writable, so the value cannot be set there; mend its permissions")


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error


def _edited(file: Path, text: str, place: Sequence[str], value: str) -> str:
    """`text` with the value at its place, proven to say that and nothing else new."""
    by_hand = f"{file}: cannot be changed by a program; write {'.'.join(place)}: {value} there by hand"
    try:
        wanted = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: not YAML: {error}") from error
    wanted = copy.deepcopy(wanted) if isinstance(wanted, dict) else {}
    inner = wanted
    for name in place[:-1]:
        if not isinstance(inner.get(name), dict):
            inner[name] = {}
        # An alias gives one object in two places; only the one of this name may change.
        inner[name] = inner = dict(inner[name])
    if inner.get(place[-1]) == value:
        return text
    inner[place[-1]] = value
    new = _Editor(text).set(root, tuple(place), value)
    try:
        if yaml.safe_load(new) != wanted:
            raise SettingsError(by_hand)
    except yaml.YAMLError as error:
        raise SettingsError(by_hand) from error
    return new


class _Editor:
    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def set(self, root: yaml.Node | None, place: tuple[str, ...], value: str) -> str:
        if root is None or _is_empty(root):
            return self._appended(place, value, 0)
        node, depth = root, 0
        while isinstance(node, yaml.MappingNode) and depth < len(place):
            found = next((inner for key, inner in node.value if key.value == place[depth]), None)
            if found is None:
                return self._into(node, place[depth:], value, top=depth == 0)
            node, depth = found, depth + 1
        if depth == len(place):
            return self._spliced(node.start_mark.index, node.end_mark.index, value)
        return self._under(node, place[depth:], value)

    def _spliced(self, start: int, end: int, value: str) -> str:
        """The scalar between two places replaced; one that was left out has no width and no space before it."""
        tail = self._newline if self._text[start:end].endswith("\n") else ""  # of a block scalar
        space = "" if self._text[start - 1].isspace() else " "
        return f"{self._text[:start]}{space}{_scalar(value)}{tail}{self._text[end:]}"

    def _into(self, mapping: yaml.MappingNode, place: tuple[str, ...], value: str, *, top: bool) -> str:
        """A new entry: last at the top level, first in an inner block, so that no comment changes its neighbour."""
        if mapping.flow_style:
            start = mapping.start_mark.index + 1
            more = ", " if mapping.value else ""
            inner = _scalar(value)
            for name in reversed(place[1:]):
                inner = f"{{{name}: {inner}}}"
            return f"{self._text[:start]}{place[0]}: {inner}{more}{self._text[start:]}"
        indent = mapping.value[0][0].start_mark.column
        if top:
            return self._appended(place, value, indent)
        start = mapping.value[0][0].start_mark.index
        entry = self._block(place, value, indent).lstrip(" ")
        return f"{self._text[:start]}{entry}{' ' * indent}{self._text[start:]}"

    def _under(self, empty: yaml.Node, place: tuple[str, ...], value: str) -> str:
        """A block below a name that stands there without a value."""
        start, end = empty.start_mark.index, empty.end_mark.index
        line_start = self._text.rfind("\n", 0, start) + 1
        indent = len(self._text[line_start:start]) - len(self._text[line_start:start].lstrip(" ")) + 2
        rest, newline, after = self._text[end:].partition("\n")
        head = self._text[:start] + rest + (newline or self._newline)
        return f"{head}{self._block(place, value, indent)}{after}"

    def _appended(self, place: tuple[str, ...], value: str, indent: int) -> str:
        gap = "" if not self._text or self._text.endswith("\n") else self._newline
        return f"{self._text}{gap}{self._block(place, value, indent)}"

    def _block(self, place: tuple[str, ...], value: str, indent: int) -> str:
        lines = [f"{' ' * (indent + 2 * level)}{name}:" for level, name in enumerate(place)]
        lines[-1] += f" {_scalar(value)}"
        return self._newline.join(lines) + self._newline


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == ""


def _scalar(value: str) -> str:
    """As YAML writes it, quoted where it must be, also within braces."""
    return yaml.safe_dump([value], default_flow_style=True, width=1 << 30, allow_unicode=True).strip()[1:-1]
