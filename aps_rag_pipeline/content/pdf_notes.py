"""What people wrote onto a PDF page: values of its form, comments, text boxes. None of it is in the text layer."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from aps_rag_pipeline.content.text import clean

if TYPE_CHECKING:
    import pypdfium2 as pdfium

_MAX_NOTES = 2000
_MAX_BYTES = 200_000
#: Values of boxes that are not ticked.
_UNTICKED = ("Off", "")


def read_notes(page: pdfium.PdfPage) -> list[str]:
    """Lines of text: "name: value" for a filled field, the words of a comment or text box.

    The caller holds the lock of PDFium.
    """
    import pypdfium2.raw as raw

    silent = {raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP}
    lines: dict[str, None] = {}
    for index in range(min(raw.FPDFPage_GetAnnotCount(page), _MAX_NOTES)):
        note = raw.FPDFPage_GetAnnot(page, index)
        if not note:
            continue
        try:
            kind = raw.FPDFAnnot_GetSubtype(note)
            if kind == raw.FPDF_ANNOT_WIDGET:
                value = _value(note, b"V")
                if value not in _UNTICKED:
                    lines[": ".join(filter(None, (_value(note, b"TU") or _value(note, b"T"), value)))] = None
            elif kind not in silent:
                lines[_value(note, b"Contents")] = None
        finally:
            raw.FPDFPage_CloseAnnot(note)
    return [line for line in lines if line]


def _value(note: object, key: bytes) -> str:
    import pypdfium2.raw as raw

    size = raw.FPDFAnnot_GetStringValue(note, key, None, 0)
    if not 2 < size <= _MAX_BYTES:
        return ""
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFAnnot_GetStringValue(note, key, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    return clean(buffer.raw[: size - 2].decode("utf-16-le", "replace")).strip()
