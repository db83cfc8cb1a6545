"""Which language a file is in, and what its grammar or its lines call a definition."""

from __future__ import annotations

import re

_TYPES = {
    "python": "function_definition class_definition",
    "tcl": "procedure namespace",
    "c": "function_definition struct_specifier union_specifier enum_specifier type_definition",
    "cpp": "function_definition struct_specifier class_specifier union_specifier enum_specifier type_definition "
    "namespace_definition concept_definition",
    "java": "class_declaration interface_declaration enum_declaration record_declaration method_declaration "
    "constructor_declaration annotation_type_declaration",
    "csharp": "namespace_declaration class_declaration interface_declaration struct_declaration enum_declaration "
    "record_declaration method_declaration constructor_declaration property_declaration",
    "kotlin": "class_declaration object_declaration function_declaration",
    "javascript": "function_declaration generator_function_declaration class_declaration method_definition "
    "arrow_function function_expression",
    "typescript": "function_declaration generator_function_declaration class_declaration method_definition "
    "arrow_function function_expression interface_declaration type_alias_declaration enum_declaration "
    "abstract_class_declaration internal_module",
    "tsx": "function_declaration class_declaration method_definition arrow_function function_expression "
    "interface_declaration type_alias_declaration enum_declaration",
    "bash": "function_definition",
    "matlab": "function_definition class_definition",
    "sql": "create_table create_view create_materialized_view create_function create_procedure create_trigger "
    "create_index create_type create_schema create_sequence alter_table",
    "fortran": "program module submodule subroutine function",
    "perl": "subroutine_declaration_statement",
    "lua": "function_declaration",
    "go": "function_declaration method_declaration type_declaration",
    "rust": "function_item impl_item mod_item struct_item enum_item trait_item macro_definition",
    "ruby": "class module method singleton_method",
    "r": "function_definition",
    "julia": "function_definition module_definition struct_definition macro_definition",
    "php": "function_definition class_declaration interface_declaration trait_declaration method_declaration",
    "vhdl": "entity_declaration architecture_body package_declaration package_body process_statement function_body",
    "verilog": "module_declaration function_declaration task_declaration interface_declaration package_declaration",
    "cmake": "function_def macro_def",
}
#: Node types that define something, by grammar.
DEFINITIONS: dict[str, frozenset[str]] = {language: frozenset(types.split()) for language, types in _TYPES.items()}

#: Nodes that stand around one definition: what matters is the one inside.
WRAPPERS = frozenset(
    {
        "decorated_definition",
        "template_declaration",
        "export_statement",
        "design_unit",
        "statement",
        "lexical_declaration",
        "variable_declaration",
        "variable_declarator",
        "binary_operator",
    }
)
#: Nodes that stand around many: their children count as their neighbours.
TRANSPARENT = frozenset(
    {
        "preproc_if",
        "preproc_ifdef",
        "preproc_else",
        "preproc_elif",
        "linkage_specification",
        "declaration_list",
        "internal_procedures",
    }
)
#: Between the parts of a qualified name; a dot elsewhere.
SCOPES = {"cpp": "::", "tcl": "::", "rust": "::", "ruby": "::", "php": "::"}

#: First lines of sections, where there is no grammar or the file does not follow it. Groups make the title.
OUTLINES: dict[str, re.Pattern[str]] = {
    "tcl": re.compile(r"\s*(?:proc|itcl::body|method)\s+(\S+)"),
    "python": re.compile(r"(?:async\s+def|def|class)\s+(\w+)"),
    "markdown": re.compile(r" {0,3}#{1,6}\s+(.+?)\s*#*$"),
    "ini": re.compile(r"\s*\[\s*(.+?)\s*\]"),
    "toml": re.compile(r"\s*\[+\s*([^]]+?)\s*\]+"),
    "yaml": re.compile(r"[\"']?(\w[\w .-]*?)[\"']?\s*:(?:\s|$)"),
    "make": re.compile(r"([\w.%/$(){}-][^:=#]*?)\s*::?(?!=)"),
    "epics-db": re.compile(r"\s*g?record\s*\(\s*\w+\s*,\s*(?:\"([^\"]+)\"|([^\s,\"]+?)\s*\)\s*\{?\s*$)"),
    "epics-substitutions": re.compile(r"\s*file\s+\"?([^\s\"{]+)"),
    "epics-protocol": re.compile(r"\s*@?(\w+)\s*\{"),
    "medm": re.compile(r"\"?[A-Za-z][\w ]*\"?\s*\{"),
    "elegant": re.compile(r"\s*&(\w+)"),
}

#: Languages that people write for people.
PROSE = frozenset({"markdown", "rst", "text"})

_SUFFIXES = {
    "python": "py pyw pyi",
    "tcl": "tcl tk itcl itk exp",
    "c": "c h st stt",
    "cpp": "cpp cc cxx hpp hh hxx c++ h++ ino cu",
    "java": "java",
    "csharp": "cs",
    "kotlin": "kt kts",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts",
    "tsx": "tsx",
    "bash": "sh bash ksh zsh",
    "matlab": "m",
    "sql": "sql ddl",
    "fortran": "f f90 f95 f03 f08 for",
    "perl": "pl pm",
    "lua": "lua",
    "go": "go",
    "rust": "rs",
    "ruby": "rb",
    "r": "r",
    "julia": "jl",
    "php": "php",
    "vhdl": "vhd vhdl",
    "verilog": "v sv svh",
    "cmake": "cmake",
    "markdown": "md markdown",
    "rst": "rst",
    "text": "txt text",
    "ini": "ini cfg conf properties",
    "toml": "toml",
    "yaml": "yaml yml",
    "make": "mk mak",
    "json": "json",
    "xml": "xml bob opi ui xsd",
    "html": "html htm",
    "css": "css scss",
    "medm": "adl",
    "epics-db": "db vdb template",
    "epics-substitutions": "substitutions subs sub",
    "epics-protocol": "proto protocol",
    "iocsh": "cmd iocsh",
    "elegant": "ele",
    "csh": "csh tcsh",
}
_BY_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_BY_NAME = {"makefile": "make", "gnumakefile": "make", "cmakelists.txt": "cmake", "dockerfile": "dockerfile"}
_BY_PROGRAM = (
    ("tclsh", "tcl"),
    ("wish", "tcl"),
    ("expect", "tcl"),
    ("python", "python"),
    ("perl", "perl"),
    ("ruby", "ruby"),
    ("node", "javascript"),
    ("lua", "lua"),
    ("rscript", "r"),
    ("tcsh", "csh"),
    ("csh", "csh"),
    ("bash", "bash"),
    ("ksh", "bash"),
    ("zsh", "bash"),
    ("sh", "bash"),
)
_CPP_HEADER = re.compile(r"^\s*(class\s+\w+[^;]*$|namespace\b|template\s*<|public\s*:)", re.MULTILINE)
_OBJECTIVE_C = re.compile(r"^\s*(@interface|@implementation|#import)\b", re.MULTILINE)


def language_of(name: str, text: str) -> str:
    """The language of a file by its name, its first line, or telling marks in it; "" when nothing says."""
    base = name.rsplit("/", 1)[-1].lower()
    if base in _BY_NAME:
        return _BY_NAME[base]
    stem, dot, suffix = base.rpartition(".")
    language = _BY_SUFFIX.get(suffix, "") if dot and stem else ""
    if language == "c" and suffix == "h" and _CPP_HEADER.search(text):
        return "cpp"
    if language == "matlab" and _OBJECTIVE_C.search(text):
        return ""
    if language in ("", "bash"):
        return _by_program(text) or language or _by_beginning(base)
    return language


def _by_beginning(base: str) -> str:
    if base.startswith("makefile"):
        return "make"
    return "text" if base.startswith(("readme", "license", "changes", "release_notes", "install", "authors")) else ""


def _by_program(text: str) -> str:
    """What runs a script: its first line, or the `exec` with which a shell hands a Tcl script on to its interpreter."""
    first, _, rest = text[:2000].partition("\n")
    if not first.startswith("#!"):
        return ""
    command = first[2:].lower()
    handed = re.search(r"^\s*exec\s+(\S*(?:tclsh|wish)\S*)", rest, re.MULTILINE)
    if handed:
        return "tcl"
    program = command.replace("/", " ").split()
    return next((language for mark, language in _BY_PROGRAM if any(mark in word for word in program)), "")
