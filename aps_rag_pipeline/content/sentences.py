"""`unstructured` without a network: no telemetry, no notice, and no model that is downloaded on first use."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def prepare_unstructured() -> None:
    """Call it before the first import from `unstructured`."""
    for name, value in (("UNSTRUCTURED_DISABLE_NOTICE", "1"), ("SCARF_NO_ANALYTICS", "true"), ("DO_NOT_TRACK", "1")):
        os.environ.setdefault(name, value)
    from unstructured.nlp import tokenize

    # Left alone, this private function downloads and installs a language model while a document is read. The model only
    # tells narrative from other text, which is not used here, at 5 ms a paragraph. A test watches the name.
    tokenize._load_spacy_model = _sentence_ends


def _sentence_ends() -> Any:
    """English tokens and sentence ends by punctuation, with no model behind them."""
    import spacy

    language = spacy.blank("en")
    language.add_pipe("sentencizer")
    return language
