"""The reading process: one job a line on standard input, dots and then one result a line on standard output."""

from __future__ import annotations

import sys

import msgspec

from aps_rag_pipeline.content.ocr.pool import OcrFailure, OcrJob
from aps_rag_pipeline.content.ocr.reading import OcrResult, read_image, read_pdf, read_pdf_page
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

#: Bytes of address space: 120 million pixels, twice, and room for the program.
MEMORY = 3 << 30


def read(job: OcrJob, limits: Limits) -> OcrResult | OcrFailure:
    """The result of one job; whatever a decoder raises is a failure of this picture alone."""
    try:
        data = job.path.read_bytes()
        if not data.startswith(b"%PDF-") and "pdf" not in job.media_type:
            return read_image(data, job.language, limits, beat)
        if job.page:
            return read_pdf_page(data, job.page, job.language, limits)
        return read_pdf(data, job.language, limits, beat)
    except UnreadableError as error:
        return OcrFailure(str(error), error.remedy, error.permanent)
    except OSError as error:
        return OcrFailure(f"the picture's bytes cannot be read: {error.strerror or error}", permanent=False)
    except MemoryError:
        return OcrFailure("reading the picture needs more memory than it may take", "make the picture smaller")
    except Exception as error:
        return OcrFailure(f"reading failed: {type(error).__name__}: {error}"[:300])


def limit_memory() -> None:
    """Let this process and its Tesseract take no more than `MEMORY` each: a picture that needs more is a failure."""
    if sys.platform == "win32":
        return
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    if most == resource.RLIM_INFINITY or most > MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, most))


def beat() -> None:
    print(".", flush=True)


def main() -> None:
    limits = Limits.model_validate_json(sys.argv[1])
    limit_memory()
    decoder = msgspec.json.Decoder(OcrJob, dec_hook=lambda kind, value: kind(value))
    for line in sys.stdin:
        print(msgspec.json.encode(read(decoder.decode(line), limits)).decode(), flush=True)


if __name__ == "__main__":
    main()
