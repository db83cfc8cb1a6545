r"""LaTeX manuals as parts: switches with their dashes, examples as code, home-made macros within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.latex import Manual, _walker_class, read_manual
from aps_rag_pipeline.content.latex_source import Macros, plain
from aps_rag_pipeline.records import Part
from aps_rag_pipeline.sources.base import UnreadableError

TOOL = r"""%
% a tool's manual
\begin{sddsprog}{sddsramp}
\item \textbf{description:}
\verb+sddsramp+ ramps process variables.  It reads
a {\em snapshot} file.

A second paragraph.
\item \textbf{examples:}
Ramp slowly:
\begin{verbatim}
  sddsramp file.snap -steps=10   % not a comment
  echo \unknown{ unbalanced
\end{verbatim}
\item \textbf{switches:}
\begin{itemize}
  \item {\tt -steps=\{{\em number} | auto\}} --- Number of steps. \newline
        Default is 10.
  \item[-pause] Seconds to wait.
    \begin{enumerate}
      \item first
      \item second
    \end{enumerate}
\end{itemize}
\item \textbf{see also:} \progref{sddssnapshot}
\item {\bf author}: M. Borland, ANL/APS.
\end{sddsprog}
"""


def texts(manual: Manual, kind: str = "prose") -> list[str]:
    return [part.text for part in manual.parts if part.kind == kind]


def only(source: str) -> str:
    (part,) = read_manual(source).parts
    return part.text


def test_a_tool_in_its_own_environment_is_divided_by_its_labels() -> None:
    manual = read_manual(TOOL)
    assert (manual.title, manual.author) == ("sddsramp", "M. Borland")
    assert manual.parts == (
        Part(
            "prose",
            "sddsramp ramps process variables. It reads a snapshot file.\n\nA second paragraph.",
            "sddsramp > description",
            "description",
        ),
        Part("prose", "Ramp slowly:", "sddsramp > examples", "examples"),
        Part(
            "code",
            "sddsramp file.snap -steps=10   % not a comment\necho \\unknown{ unbalanced",
            "sddsramp > examples",
            "examples",
        ),
        Part(
            "prose",
            "- -steps={number | auto} --- Number of steps.\nDefault is 10.\n- -pause: Seconds to wait.\n"
            "  1. first\n  2. second",
            "sddsramp > switches",
            "switches",
        ),
        Part("prose", "sddssnapshot", "sddsramp > see also", "see also"),
        Part("prose", "M. Borland, ANL/APS.", "sddsramp > author", "author"),
    )


def test_a_document_has_title_author_and_nested_sections() -> None:
    manual = read_manual(
        r"""\documentclass[11pt]{article}
\usepackage[dvips]{graphicx}
\setlength{\topmargin}{0.15 in} \tolerance=10000
\begin{document}
\title{User's Guide\\ Version 5}
\author{M. Borland, L. Emery\\Advanced Photon Source}
\maketitle
Before any section.
\section{Protocol}\label{sect:p}
See \ref{sect:p} and \cite{SDDS}.
\subsection*{The {\tt header}}
Text\footnote{or not} with $\beta_x \le 3$~m.
\begin{thebibliography}{9}\bibitem{SDDS} M. Borland, ``SDDS''.\end{thebibliography}
\end{document}
trailing rubbish"""
    )
    assert manual.title == "User's Guide Version 5"
    assert manual.author == "M. Borland, L. Emery"
    assert [(part.locator, part.text) for part in manual.parts] == [
        ("", "Before any section."),
        ("Protocol", "See sect:p and [SDDS]."),
        ("Protocol > The header", "Text (or not) with β_x ≤ 3 m."),
        ("References", '[SDDS] M. Borland, "SDDS".'),
    ]


def test_labels_in_a_plain_list_are_sections_and_end_with_the_list() -> None:
    manual = read_manual(
        r"""\section{SDDS\_Bomb}
\begin{itemize}
\item {\bf name}: SDDS\_Bomb
\item {\bf description:} Stops. {\bf Note:} really.
\item {\bf bold} --- but no label
\end{itemize}
After the list."""
    )
    assert [(part.locator, part.text) for part in manual.parts] == [
        ("SDDS_Bomb > name", "SDDS_Bomb"),
        ("SDDS_Bomb > description", "Stops. Note: really.\n- bold --- but no label"),
        ("SDDS_Bomb", "After the list."),
    ]


def test_tables_become_pipe_tables_with_captions() -> None:
    manual = read_manual(
        r"""\begin{table}[htb]\caption{Types of {\em data}}
\begin{tabular}{|l|r|}\hline
Name & Size \\ \hline
\verb|long| & 4 \\
a \& b | c & \multicolumn{1}{c}{8} \\ \hline
\end{tabular}\end{table}"""
    )
    assert manual.parts == (
        Part(
            "table",
            "| Name | Size |\n| --- | --- |\n| long | 4 |\n| a & b \\| c | 8 |",
            title="Types of data",
        ),
    )


def test_home_made_macros_and_environments_are_expanded() -> None:
    source = r"""
\newcommand{\aps}{Advanced Photon Source}
\newcommand{\option}[2][opt]{{\tt -#2}[=#1]}
\def\twice#1{#1 and #1}
\newenvironment{req}[1]{Requirement #1: }{ (end)}
At the \aps we have \option{pipe}, \option[in]{pipe}, \twice{\aps}.
\begin{req}{R1}must hold\end{req}"""
    assert only(source) == (
        "At the Advanced Photon Source we have -pipe[=opt], -pipe[=in], "
        "Advanced Photon Source and Advanced Photon Source. Requirement R1: must hold (end)"
    )


def test_macros_of_another_file_are_given_along() -> None:
    macros = plain(r"\newcommand{\progref}[1]{\hyperref[#1]{\texttt{#1()}}}", Macros()).macros
    (part,) = read_manual(r"Use \progref{cavget} now.", macros).parts
    assert part.text == "Use cavget() now."


def test_shared_files_stand_in_the_place_of_their_input() -> None:
    asked: list[str] = []

    def find(name: str) -> str | None:
        asked.append(name)
        return {"pipe": r"\item {\tt -pipe} --- The standard option, see \input nested.tex"}.get(name)

    manual = read_manual(r"\begin{itemize}\input{pipe}\item x\end{itemize}\include{chapter}", find=find)
    assert asked == ["pipe", "nested.tex", "chapter"]
    assert manual.missing == ("nested.tex", "chapter")
    assert texts(manual) == ["- -pipe --- The standard option, see\n- x"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (r"\newcommand{\a}{\b\b}\newcommand{\b}{\a\a}\a", "expand without end"),
        ("".join(rf"\newcommand{{\x{chr(97 + n)}}}{{{(chr(92) + 'x' + chr(98 + n)) * 9}}}" for n in range(20)) + r"\xa",
         "expand without end"),
    ],
)  # fmt: skip
def test_macros_without_end_are_refused(source: str, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        read_manual(source)


def test_a_file_that_takes_in_itself_is_no_endless_loop() -> None:
    manual = read_manual(r"a \input{self} b", find=lambda name: r"c \input{self} d")
    assert texts(manual)[0].startswith("a c c")
    assert set(manual.missing) == {"self"}


def test_no_file_is_read_and_no_command_run_whatever_the_source_says() -> None:
    text = only(
        r"before \input{/etc/passwd}\immediate\write18{touch x}\openin3=/etc/passwd\verbatiminput{/etc/passwd} after"
    )
    assert "root:" not in text
    assert text.startswith("before")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"{\tt --long} and {\tt -x}", "--long and -x"),
        (r"50\% of A\_B \& C\#1 \$x", "50% of A_B & C#1 $x"),
        (r"a % comment" + "\n   b", "a b"),
        ("a\n% only a comment\n\nb", "a\n\nb"),
        (r"\verb|a%b{| c \verb+x|y+", "a%b{ c x|y"),
        (r"\verb|-c=\emph{name}|", "-c=name"),
        (r"\unknown[opt]{kept} \textless x\textgreater", "[opt]kept <x>"),
        (r"caf\'e, na\"{\i}ve, Gr{\"u}n", "café, naïve, Grün"),
        (r"\url{http://x/a%20b_c}", "http://x/a%20b_c"),
        (r"\begin{htmlonly}twice\end{htmlonly}\begin{latexonly}once\end{latexonly}", "once"),
        (r"\begin{quote}{\em said} he\end{quote}", "said he"),
        (r"\hspace*{5mm}{\tt sddsconvert}\\ \textbf{Note}", "sddsconvert\nNote"),
        (r"\begin{equation} E = m c^2 \end{equation}", "E = m c^2"),
        (r"$\frac{1}{2}$ and \[ \sum_i x_i \]", "1/2 and\n∑_i x_i"),
    ],
)
def test_words_come_out_as_printed(source: str, text: str) -> None:
    assert only(source) == text


def test_links_are_collected() -> None:
    manual = read_manual(r"See \href{https://ops.aps.anl.gov/m?a=1&b=2}{the site} and \href{#local}{here}.")
    assert manual.urls == {"https://ops.aps.anl.gov/m?a=1&b=2": "the site"}
    assert texts(manual) == ["See the site (https://ops.aps.anl.gov/m?a=1&b=2) and here (#local)."]


def test_a_line_in_large_type_in_the_middle_is_a_heading() -> None:
    manual = read_manual(r"\begin{center}{\Large \verb+erase+}\end{center} deletes.")
    assert [(part.title, part.text) for part in manual.parts] == [("erase", "deletes.")]


def test_settings_and_macros_alone_give_no_parts() -> None:
    source = r"""\newcommand{\x}[1]{\texttt{#1}}\pagestyle{plain}\setlength{\textwidth}{7.5 in}
\makeatletter \def\verbatim@font{\small\ttfamily} \makeatother"""
    assert read_manual(source).parts == ()


def test_the_faster_reader_of_words_gives_what_pylatexenc_gives() -> None:
    from pylatexenc.latexwalker import LatexWalker

    source = r"A b-c, d--e f---g ``q'' [x] {y z}\textbf 1a \frac12 $a+b_1$ ~ x^2 & # \item[l] p. Q;"

    def nodes(kind: type) -> str:
        found = kind(source, tolerant_parsing=True).get_latex_nodes()[0]
        return "|".join(node.latex_verbatim() + type(node).__name__ for node in found)

    assert nodes(_walker_class()) == nodes(LatexWalker)


_bits = st.sampled_from(
    ["\\", "{", "}", "[", "]", "$", "$$", "%", "&", "~", "\n", "\n\n", "\\begin{", "\\end{itemize}", "\\begin{itemize}",
     "\\item ", "\\item[", "\\verb|", "\\begin{verbatim}", "\\section{",
     "\\newcommand{\\q}[1]{#1\\q}", "\\q", "\\def\\z",
     "\\input{", "\\textbf{", "\\begin{tabular}{l}", "\\\\", "\\href{", "\\caption{", "word -x", "\ue000" + "7\ue001",
     "\ue010" + "3x", "^", "_", "\\frac", "é", "\\begin{table}", "\\(", "\\["]
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(_bits, max_size=25))
def test_damaged_source_is_read_or_refused_and_leaves_no_marks(bits: list[str]) -> None:
    try:
        manual = read_manual("".join(bits))
    except UnreadableError:
        return
    for part in manual.parts:
        assert part.text.strip()
        assert not any("\ue000" <= char <= "\uf8ff" for char in part.text + part.title + part.locator)
