"""Program text in stretches: every line once, one definition each, long ones cut and tiny ones grouped."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content import syntax
from aps_rag_pipeline.content.languages import DEFINITIONS, OUTLINES, language_of
from aps_rag_pipeline.content.syntax import GROUP, LONGEST, Stretch, stretches

#: A program in each language and the qualified names a reader would look for in it.
PROGRAMS = {
    "python": (
        "import os\n\n@wraps\ndef ramp():\n    pass\n\nclass Magnet:\n    def set(self):\n        pass\n",
        "ramp Magnet",
    ),
    "tcl": (
        "proc ::rf::tune {a b} {\n  puts hi\n}\nnamespace eval bpm {\n  proc read {} { return 1 }\n}\n",
        "::rf::tune bpm",
    ),
    "c": ("#include <x.h>\nstruct Buffer { int n; };\nstatic int *fill(int a)\n{\n return 0;\n}\n", "Buffer fill"),
    "cpp": ("namespace ioc { class Device { int m(); }; }\nint Device::m() { return 1; }\n", "ioc Device::m"),
    "java": ("package a;\nclass Panel { void show() { } }\ninterface Shown { void z(); }\n", "Panel Shown"),
    "csharp": ("class Panel { void Show() { } }\n", "Panel"),
    "javascript": (
        "const load = (a) => { return a };\nexport default function draw() {}\nclass Plot { }\n",
        "load draw Plot",
    ),
    "typescript": ("interface Point { x: number }\nexport class Plot { m(): void {} }\n", "Point Plot"),
    "bash": ("#!/bin/bash\nsave() {\n echo 1\n}\nfunction restore { echo 2; }\n", "save restore"),
    "matlab": ("function y = orbit(x)\n% corrects\ny = x;\nend\nfunction twiss()\nend\n", "orbit twiss"),
    "sql": ("CREATE TABLE shifts (a int);\nCREATE VIEW current AS SELECT 1;\n", "shifts current"),
    "fortran": (
        "subroutine track(a)\ninteger a\nend subroutine track\nfunction f(x)\nf=x\nend function f\n",
        "track f",
    ),
    "perl": ("sub archive { return 1; }\nsub fetch { return 2; }\n", "archive fetch"),
    "lua": ("function m.run(x) return x end\nlocal function stop() end\n", "m.run stop"),
    "go": ("package a\nfunc Run(a int) int { return a }\ntype T struct { a int }\n", "Run T"),
    "rust": ("fn run() {}\nstruct S;\n", "run S"),
    "ruby": ("class Ring\n def turn\n end\nend\n", "Ring"),
    "r": ("fit <- function(x) { x }\n", "fit"),
    "julia": ("function fit(x)\n x\nend\n", "fit"),
    "php": ("<?php\nfunction show() {}\n", "show"),
    "vhdl": (
        "library ieee;\nentity gate is\nend entity gate;\narchitecture rtl of gate is\nbegin\nend architecture rtl;\n",
        "gate rtl",
    ),
    "verilog": ("module gate(input a);\nendmodule\n", "gate"),
    "kotlin": ("class A { fun m() {} }\nfun f() {}\n", "A f"),
    "cmake": ("function(add_ioc a)\n message(a)\nendfunction()\n", "add_ioc"),
    "epics-db": ('record(ai, "S1:Temp") {\n  field(EGU, "C")\n}\nrecord(bo, "$(P)Reset") {\n}\n', "S1:Temp $(P)Reset"),
    "make": ("PROD = x\nall: build\n\tcc x.c\ninstall: all\n\tcp x\n", "all install"),
    "ini": ("[server]\na=1\n[client]\nb=2\n", "server client"),
    "markdown": ("# Start up\ntext\n```sh\n# not a heading\n```\n## Recovery\nmore\n", "Start_up Recovery"),
}


def joined(parts: list[Stretch]) -> list[str]:
    return [line for part in parts for line in part.text.split("\n") if line.strip()]


def kept(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def assert_partition(text: str, parts: list[Stretch]) -> None:
    """The parts are the file: in order, no line twice, line numbers that say where they are."""
    lines = text.split("\n")
    assert joined(parts) == kept(text)
    for part in parts:
        assert part.text == "\n".join(lines[part.first - 1 : part.last])
    assert all(before.last < after.first for before, after in pairwise(parts))


@pytest.mark.parametrize("language", PROGRAMS)
def test_definitions_give_their_names(language: str) -> None:
    text, names = PROGRAMS[language]
    parts = stretches(text, language)
    assert_partition(text, parts)
    titles = ", ".join(part.title for part in parts).split(", ")
    assert titles == [name.replace("_", " ") if language == "markdown" else name for name in names.split()]


@pytest.mark.parametrize("language", sorted(DEFINITIONS))
def test_every_grammar_is_in_the_wheel(language: str) -> None:
    assert syntax._parse("x", language) is not None


def long_body(lines: int, indent: str = "    ") -> str:
    return "".join(f"{indent}value_{n} = compute(value_{n - 1}, {n}) + offset[{n}]\n" for n in range(1, lines))


def test_a_function_stands_alone_with_the_comment_above_it() -> None:
    text = (
        "import os\n\n" + "TABLE = [\n" + "    1,\n" * 150 + "]\n\n"
        "# Ramps the bumps.\n# Slowly.\n@retry\ndef ramp():\n" + long_body(20) + "\n\ndef stop():\n" + long_body(20)
    )
    first, ramp, stop = stretches(text, "python")
    assert first.title == ""
    assert first.text.startswith("import os")
    assert ramp.title == "ramp"
    assert ramp.text.startswith("# Ramps the bumps.\n# Slowly.\n@retry\ndef ramp():")
    assert stop.title == "stop"
    assert stop.text.startswith("def stop():")


def test_methods_of_a_long_class_are_parts_with_qualified_names() -> None:
    methods = "".join(f"    def step_{n}(self):\n        '''Doc {n}.'''\n{long_body(12, ' ' * 8)}\n" for n in range(6))
    text = f"class Ramp:\n    '''All of it.'''\n\n{methods}"
    parts = stretches(text, "python")
    assert [part.title for part in parts][1:] == [f"Ramp.step_{n}" for n in range(1, 6)]
    assert parts[0].title == "Ramp, Ramp.step_0"
    assert_partition(text, parts)


def test_a_very_long_function_is_cut_between_statements() -> None:
    block = "    if (x) {\n        call_a(x, y);\n        call_b(x, y);\n    }\n"
    text = "/* doc */\nint run(int x)\n{\n" + block * 120 + "    return 0;\n}\n"
    parts = stretches(text, "c")
    assert len(parts) == 3
    assert {part.title for part in parts} == {"run"}
    assert all(part.text.lstrip().startswith("if (x) {") for part in parts[1:])
    assert all(len(part.text) <= LONGEST for part in parts)


def test_a_single_huge_statement_is_cut_inside() -> None:
    text = "TABLE = {\n" + "".join(f"    'S{n}:Current': (0.0, {n}),\n" for n in range(400)) + "}\n"
    parts = stretches(text, "python")
    assert_partition(text, parts)
    assert len(parts) > 3
    assert all(len(part.text) <= LONGEST for part in parts)


def test_tiny_definitions_are_grouped() -> None:
    text = "".join(f"def get_{n}():\n    return {n}\n\n" for n in range(60))
    parts = stretches(text, "python")
    assert 1 < len(parts) < 10
    assert all(len(part.text) <= GROUP for part in parts)
    assert parts[0].title.startswith("get_0, get_1")
    assert parts[0].title.endswith("...")


def test_functions_inside_a_header_guard_are_found() -> None:
    body = "    total += 1;\n" * 40
    text = f"#ifndef X_H\n#define X_H\nint one(void) {{\n{body}}}\n\nint two(void) {{\n{body}}}\n#endif\n"
    assert [part.title for part in stretches(text, "c")] == ["one", "two"]


def test_tcl_that_the_grammar_cannot_follow_is_cut_by_its_procedures() -> None:
    body = "".join(f"    set x{n} [exec sddsprocess -pipe=out file{n}]\n" for n in range(15))
    text = (
        f"# Reads.\nproc APSRead {{args}} {{\n{body}    if {{$a}} {{\n    }};# odd }}\n}}\n"
        f'set main 1\n{body}proc APSWrite {{args}} {{\n{body}}}\nputs "unbalanced [\n'
    )
    assert syntax._parse(text, "tcl").has_error
    parts = stretches(text, "tcl")
    assert [part.title for part in parts] == ["APSRead", "", "APSWrite"]
    assert parts[0].text.startswith("# Reads.")
    assert parts[1].text.startswith("set main 1")


def test_text_without_a_grammar_is_cut_at_blank_lines() -> None:
    paragraph = "iocInit and what follows of it in this line\n" * 10
    parts = stretches("\n".join([paragraph] * 30), "iocsh")
    assert all(1000 < len(part.text) <= LONGEST for part in parts[:-1])
    assert all(part.text.count("\n") % 11 == 9 for part in parts)


def test_a_parse_that_takes_too_long_falls_back_to_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "PARSE_SECONDS", -1.0)
    text = "def first():\n" + long_body(60) + "\ndef second():\n" + long_body(30)
    parts = stretches(text, "python")
    assert_partition(text, parts)
    assert [part.title for part in parts][-1] == "second"


def test_deep_nesting_and_one_endless_line_do_no_harm() -> None:
    for text in ("(" * 20_000, "x = " + "[\n" * 3000 + "]" * 3000, "a" * 100_000, "{\n" * 2000):
        for language in ("python", "c", "tcl", "json"):
            assert_partition(text, stretches(text, language))


_pieces = st.sampled_from(
    [text for text, _ in PROGRAMS.values()]
    + [
        "\n",
        "\n\n\n",
        "}",
        "{",
        '"',
        "'''",
        "# comment\n",
        "/* open",
        "proc x {",
        "def f(",
        "\t",
        "é\u2028\n",
        "x" * 500,
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_pieces, max_size=30), st.sampled_from(sorted({*DEFINITIONS, *OUTLINES, "text"})))
def test_any_text_is_partitioned(pieces: list[str], language: str) -> None:
    text = "".join(pieces)
    assert_partition(text, stretches(text, language))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000_000), st.sampled_from(sorted(PROGRAMS)))
def test_long_damaged_programs_are_partitioned(seed: int, language: str) -> None:
    dice = random.Random(seed)
    lines = (PROGRAMS[language][0] * 40).split("\n")
    dice.shuffle(lines)
    text = "\n".join(lines)
    assert_partition(text, stretches(text, language))


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("a/b.TCL", "", "tcl"),
        ("orbitCorrect", "#!/bin/sh\n# \\\nexec oagtclsh \"$0\" \"$@\"\n", "tcl"),
        ("plot", "#!/usr/bin/env python3\n", "python"),
        ("start", "#!/bin/bash\n", "bash"),
        ("run.sh", "#!/usr/bin/perl -w\n", "perl"),
        ("old.csh", "#!/bin/tcsh\n", "csh"),
        ("Makefile", "", "make"),
        ("Makefile.Host", "", "make"),
        ("dev.h", "int f(void);\n", "c"),
        ("dev.h", "class Dev : public Base {\n};\n", "cpp"),
        ("x.m", "@interface X\n@end\n", ""),
        ("x.m", "function y = f(x)\n", "matlab"),
        ("rf.adl", "", "medm"),
        ("rf.substitutions", "", "epics-substitutions"),
        ("README", "", "text"),
        (".gitignore", "", ""),
        ("data.xyz", "", ""),
    ],
)  # fmt: skip
def test_languages_are_told_by_name_and_first_line(name: str, text: str, language: str) -> None:
    assert language_of(name, text) == language
