"""What every live feed's address and options have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from aps_rag_pipeline.settings import Settings, SettingsError
from aps_rag_pipeline.sources.base import FeedError
from aps_rag_pipeline.sources.options import http_url


def feed(url: str) -> object:
    values = {"feeds": [{"name": "log", "source": "bely", "form": "olog", "url": url}]}
    return Settings.build(values, Path("facility.yaml")).feeds[0]


@pytest.mark.parametrize("url", ["https://ops:s3cret@olog.example", "ops:s3cret@olog.example", "//ops:s3cret@x"])
def test_a_password_in_an_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        feed(url)
    assert "put it into `credentials`" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "olog.example", "ftp://olog.example", "s3cret@olog.example"])
def test_an_address_that_is_none_of_the_web_is_named(url: str) -> None:
    with pytest.raises(FeedError, match="`url` is missing or not one of the web") as refused:
        http_url(feed(url), "an Olog")
    assert "s3cret" not in str(refused.value)
    assert "an Olog" in str(refused.value)
