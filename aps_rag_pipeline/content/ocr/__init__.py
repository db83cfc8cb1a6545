"""Text in pictures (screenshots, scans, PDF pages without text), read by Tesseract in processes that may die."""

from aps_rag_pipeline.content.ocr.engine import Tesseract, engine_version, find_tesseract
from aps_rag_pipeline.content.ocr.pool import OcrFailure, OcrJob, recognise
from aps_rag_pipeline.content.ocr.reading import OCR_VERSION, OcrResult, read_image, read_pdf_page, readable

__all__ = [
    "OCR_VERSION",
    "OcrFailure",
    "OcrJob",
    "OcrResult",
    "Tesseract",
    "engine_version",
    "find_tesseract",
    "read_image",
    "read_pdf_page",
    "readable",
    "recognise",
]
