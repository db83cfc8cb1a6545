"""What commands and environments of LaTeX mean to a reader of the text, by their names."""

from __future__ import annotations

#: Headings and their levels, outermost first; level 2 is left to chapters and tools that stand in an own environment.
LEVELS = {
    "part": 1,
    "chapter": 2,
    "section": 3,
    "subsection": 4,
    "subsubsection": 5,
    "paragraph": 6,
    "subparagraph": 7,
}
LISTS = ("itemize", "enumerate", "description", "list", "trivlist")
TABLES = ("tabular", "tabular*", "tabularx", "longtable", "supertabular")

_ARRANGING = """
    center flushleft flushright raggedright quote quotation verse document latexonly figure figure* wrapfigure minipage
    tabbing samepage sloppypar titlepage landscape small footnotesize large Large multicols appendix em tt it bf
"""
#: Environments that only arrange their text: a group that begins one is no name.
ARRANGING = frozenset(_ARRANGING.split())

_SILENT = """
    label maketitle tableofcontents listoffigures listoftables newpage clearpage hline cline vspace hspace setlength
    addtolength setcounter newcounter pagestyle thispagestyle documentclass documentstyle bibliographystyle bibliography
    includegraphics epsfig psfig graphicspath rule phantom nocite index addcontentsline markboth fontsize selectfont
    makeatletter makeatother hypersetup special title author date thanks today
"""
#: Commands that say nothing to a reader, and neither do their arguments.
SILENT = frozenset(_SILENT.split())

_COMMANDS = {
    "{": "url path nolinkurl cline bibliographystyle bibliography pagestyle thispagestyle newcounter index nocite date "
    "color thanks label ref pageref eqref graphicspath hypersetup epsfig psfig special phantom",
    "[{": "hyperref bibitem caption documentclass documentstyle title author cite footnotetext",
    "*[{": "includegraphics",
    "*{": "hspace vspace",
    "{{": "href setlength addtolength setcounter markboth fontsize raisebox textcolor",
    "[{{": "rule parbox",
    "[[{": "makebox",
    "{{{": "multicolumn addcontentsline",
}
_ENVIRONMENTS = {
    "[": "figure figure* table table* itemize enumerate description",
    "[{": "minipage tabular longtable array",
    "{": "thebibliography multicols",
    "{[{": "tabular* tabularx",
    "{{": "wrapfigure list",
}

#: Characters by name, where pylatexenc gives nothing.
SYMBOLS = {
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textunderscore": "_",
    "textquotesingle": "'",
    "textendash": "-",
    "textemdash": "---",
    "slash": "/",
    "quad": " ",
    "qquad": " ",
}


def _forms(by_form: dict[str, str]) -> dict[str, str]:
    return {name: form for form, names in by_form.items() for name in names.split()}


#: Arguments of commands and environments, in pylatexenc's notation, where it does not know them or knows others.
ARGUMENTS = _forms(_COMMANDS)
ENVIRONMENT_ARGUMENTS = _forms(_ENVIRONMENTS)
