"""The nine sources. Modules are named by their key and imported on first use, since some pull in heavy parsers."""

from __future__ import annotations

import importlib

from aps_rag_pipeline.records import SOURCES
from aps_rag_pipeline.settings import Feed, SettingsError
from aps_rag_pipeline.sources.base import Source, SourceContext


def open_source(feed: Feed, context: SourceContext) -> Source:
    """The reader of a feed: class registered under `feed.form` in the module named by the source.

    Raises:
        SettingsError: the source has no such form.
    """
    assert feed.source in SOURCES
    module = importlib.import_module(f"aps_rag_pipeline.sources.{feed.source}")
    forms: dict[str, type[Source]] = module.FORMS
    if feed.form not in forms:
        raise SettingsError(f"feed {feed.name}: {feed.source} has no form {feed.form!r}; there are: {', '.join(forms)}")
    return forms[feed.form](feed, context)
