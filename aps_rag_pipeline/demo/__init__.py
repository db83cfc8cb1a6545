"""The seeded demo facility: nine sources in their real formats, with planted truth and questions."""

from aps_rag_pipeline.demo.advance import advance
from aps_rag_pipeline.demo.score import ScoreTable, score
from aps_rag_pipeline.demo.truth import DayReport, Summary, Truth, load_truth
from aps_rag_pipeline.demo.write import write

__all__ = ["DayReport", "ScoreTable", "Summary", "Truth", "advance", "load_truth", "score", "write"]
