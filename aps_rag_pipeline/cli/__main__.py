"""`python -m aps_rag_pipeline.cli`."""

from aps_rag_pipeline.cli import main

main()
