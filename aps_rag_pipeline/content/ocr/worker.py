"""The reading process: jobs come in, empty frames as signs of life and then one result or failure each go out."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from typing import IO

import msgspec
import psutil

from aps_rag_pipeline.content.children import own_streams, read_frame, write_frame
from aps_rag_pipeline.content.ocr.pool import FAILURE, RESULT, OcrFailure, OcrJob
from aps_rag_pipeline.content.ocr.reading import Beat, OcrResult, read_image, read_pdf, read_pdf_page
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

#: Bytes of address space beyond what the process begins with, a JPEG's or WebP's decoder included: more is refused when
#: it is asked for, before anything is filled.
MEMORY = 1_500_000_000


def read(job: OcrJob, limits: Limits, beat: Beat) -> OcrResult | OcrFailure:
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
    """Let this process and its Tesseract take no more than `MEMORY`: a picture that needs more is a failure."""
    if sys.platform == "win32":
        return
    import resource

    wanted = psutil.Process().memory_info().vms + MEMORY
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    if most == resource.RLIM_INFINITY or most > wanted:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


def main() -> None:
    limits = Limits.model_validate_json(sys.argv[1])
    limit_memory()
    source, target = own_streams()
    beat = partial(write_frame, target, b"")
    while (frame := read_frame(source)) is not None:
        _answer(read(pickle.loads(frame), limits, beat), target)


def _answer(found: OcrResult | OcrFailure, target: IO[bytes]) -> None:
    write_frame(target, (RESULT if isinstance(found, OcrResult) else FAILURE) + msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main()
