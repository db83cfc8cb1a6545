"""The seeded demo facility: nine sources in their real formats, with planted truth and questions."""

from aps_rag_pipeline.demo.truth import DayReport, Summary, Truth, load_truth
from aps_rag_pipeline.demo.write import write

__all__ = ["DayReport", "Summary", "Truth", "load_truth", "write"]
