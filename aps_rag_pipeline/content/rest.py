"""reStructuredText to HTML. Nothing is included or fetched; what Sphinx alone knows is kept as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from aps_rag_pipeline.content.wikilines import plain_html

if TYPE_CHECKING:
    from docutils import nodes
    from docutils.parsers.rst import Directive

#: docutils refuses a document with a longer line, against substitutions that blow up.
_MAX_LINE = 100_000
#: docutils reads about 100 kB a second; nobody writes a longer page by hand.
_MAX_PAGE = 1_500_000
_SETTINGS: dict[str, Any] = {
    "_disable_config": True,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "doctitle_xform": False,
    "docinfo_xform": False,
    "smart_quotes": False,
    "syntax_highlight": "none",
    "embed_stylesheet": False,
    "stylesheet_path": "",
    "math_output": "LaTeX",
    "initial_header_level": 1,
    "output_encoding": "unicode",
    "toc_backlinks": False,
    "section_self_link": False,
    "line_length_limit": _MAX_LINE,
    "halt_level": 5,
    "report_level": 3,  # errors stay in the tree, since they carry the text that could not be parsed
    "warning_stream": "",
}
_DIRECTIVE = re.compile(r"^\s*(?:\.\.|__)\s+(?:\|[^|\n]+\|\s+)?([A-Za-z][\w.+:-]*?)\s?::(?:\s|$)", re.MULTILINE)
_ROLE = re.compile(r":([A-Za-z][\w.+-]*(?::[A-Za-z][\w.+-]*)*):`")
_TITLED = re.compile(r"(.*?)\s*<([^<>]+)>$", re.DOTALL)
# fmt: off
_VERBATIM = frozenset((
    "literalinclude", "program-output", "command-output", "prompt", "terminal", "ipython", "graphviz", "mermaid",
    "plot", "uml", "productionlist", "doctest", "testcode", "testoutput", "digraph", "graph", "sourcecode",
))
# fmt: on
_EMPTY = frozenset(("highlight", "tabularcolumns", "currentmodule", "index", "default-domain", "meta"))


def rest_to_html(text: str) -> str:
    """A page as HTML. Links to pages have addresses of the form `wiki:<target>`."""
    lines = text.split("\n")
    if len(text) > _MAX_PAGE or max(map(len, lines), default=0) > _MAX_LINE:
        return plain_html(text)
    from docutils.core import publish_doctree, publish_from_doctree

    _register(text)
    tree = publish_doctree(text, settings_overrides=_SETTINGS)
    _keep_unparsed(tree)
    return str(publish_from_doctree(tree, writer="html5", settings_overrides=_SETTINGS))


def _keep_unparsed(tree: nodes.document) -> None:
    """An error message gives way to the source text that it quotes (a malformed table, a wrong option)."""
    from docutils import nodes

    for section in list(tree.findall(nodes.section)):
        if "system-messages" in section["classes"] and section.parent is not None:
            section.parent.remove(section)
    for message in list(tree.findall(nodes.system_message)):
        if message.parent is not None:
            place = message.parent.index(message)
            quoted = [child for child in message.children if isinstance(child, nodes.literal_block)]
            message.parent[place : place + 1] = quoted


def _register(text: str) -> None:
    """Give every directive and role that docutils does not know to a reader that keeps its text."""
    from docutils.parsers.rst import directives, roles

    directive, known_directives, known_roles = _fallback()
    for name in {match.lower() for match in _DIRECTIVE.findall(text)} - known_directives:
        directives.register_directive(name, directive)
    for name in {match.lower() for match in _ROLE.findall(text)} - known_roles:
        roles.register_local_role(name, cast(Any, _role))


@lru_cache(maxsize=1)
def _fallback() -> tuple[type[Directive], frozenset[str], frozenset[str]]:
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives
    from docutils.parsers.rst.languages import en

    class AnyOption(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return directives.unchanged

    class KeepText(Directive):
        """Argument and content of a directive, as text, links or verbatim."""

        has_content = True
        optional_arguments = 1
        final_argument_whitespace = True
        option_spec = AnyOption(name=directives.unchanged)

        def run(self) -> Sequence[nodes.Node]:
            name = self.name.rsplit(":", 1)[-1].lower()
            if name in _EMPTY:
                return []
            if name == "toctree":
                return [_contents(list(self.content))]
            said = " ".join(" ".join(self.arguments).split())
            body = "\n".join(self.content)
            if name == "raw":  # only its words are read from it, like from any other HTML
                return [nodes.raw("", body, format="html")] if said == "html" else []
            if name in _VERBATIM:
                shown = body or said
                return [nodes.literal_block(shown, shown)] if shown else []
            box = nodes.container()
            if said:
                inline, messages = self.state.inline_text(said, self.lineno)
                box += nodes.paragraph(said, "", *inline)
                box += messages
            if body:
                self.state.nested_parse(self.content, self.content_offset, box)
            return list(box.children)

    return (
        KeepText,
        # docutils would include files and drop HTML; here the name of the one and the words of the other are kept.
        frozenset((*en.directives, *en.directives.values())) - {"include", "raw"},
        frozenset((*en.roles, *en.roles.values())),
    )


def _contents(lines: list[str]) -> nodes.Node:
    from docutils import nodes

    entries = nodes.bullet_list()
    for line in lines:
        entry = line.strip()
        if entry and not entry.startswith(":") and "*" not in entry and entry != "self":
            title, target = _parted(entry)
            address = target if "://" in target else f"wiki:{target}"
            entries += nodes.list_item("", nodes.paragraph("", "", nodes.reference("", title, refuri=address)))
    return entries


def _role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = None
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    from docutils import nodes
    from docutils.utils import unescape

    title, target = _parted(unescape(text))
    role = name.rsplit(":", 1)[-1].lower()
    if role == "doc":
        return [nodes.reference(rawtext, title, refuri=f"wiki:{target}")], []
    if role == "download":
        return [nodes.reference(rawtext, title, refuri=target)], []
    return [nodes.inline(rawtext, title.removeprefix("~").removeprefix("!"))], []


def _parted(text: str) -> tuple[str, str]:
    match = _TITLED.match(text.strip())
    return (match[1] or match[2], match[2]) if match else (text.strip(), text.strip())
