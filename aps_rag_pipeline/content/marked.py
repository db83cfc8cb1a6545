"""Pages of wikis in any markup: HTML first, then parts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from aps_rag_pipeline.content.confluence import storage_to_html
from aps_rag_pipeline.content.dokuwiki import dokuwiki_to_html
from aps_rag_pipeline.content.guard import reading
from aps_rag_pipeline.content.mediawiki import mediawiki_to_html
from aps_rag_pipeline.content.pages import FindPicture, Page, markdown_to_html, partition_page
from aps_rag_pipeline.content.rest import rest_to_html
from aps_rag_pipeline.content.wikilines import WikiText, plain_html
from aps_rag_pipeline.sources.base import Blobs, UnreadableError


@dataclass
class MarkedPage:
    """A page: as HTML with what its markup says beside the text, and as parts."""

    marked: WikiText
    page: Page
    #: Why it was read as plain text, where it was.
    trouble: str = ""


def parse_page(markup: str, text: str, blobs: Blobs, zone: tzinfo, find_picture: FindPicture) -> MarkedPage:
    """Like :func:`isolation.page_apart`, in this process.

    Args:
        markup: markdown, html, rest, mediawiki, dokuwiki or confluence; any other name is no markup at all.
    """
    with reading(markup):
        trouble = ""
        try:
            marked = _to_html(markup, text)
        except (UnreadableError, MemoryError):
            raise
        except Exception as error:
            # Markup that its own parser stumbles over is still text that people wrote.
            trouble = (
                f"read as plain text, since its {markup} markup cannot be parsed ({type(error).__name__}: {error})"
            )
            marked = WikiText(plain_html(text))
        return MarkedPage(marked, partition_page(marked.html, blobs, zone, find_picture), trouble)


def _to_html(markup: str, text: str) -> WikiText:
    match markup:
        case "html":
            return WikiText(text)
        case "markdown":
            return WikiText(markdown_to_html(text))
        case "dokuwiki":
            return dokuwiki_to_html(text)
        case "mediawiki":
            return mediawiki_to_html(text)
        case "confluence":
            return storage_to_html(text)
        case "rest":
            return WikiText(rest_to_html(text))
        case _:
            return WikiText(plain_html(text))
