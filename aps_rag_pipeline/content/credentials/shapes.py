"""Tokens that are known by their shape: the plugins of detect-secrets, and shapes that they do not know."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from aps_rag_pipeline.content.credentials.spans import Span
from aps_rag_pipeline.content.credentials.values import is_placeholder

#: No token is longer; it bounds the work on long lines of Base64.
_LONGEST = 4096


class _Shape(NamedTuple):
    """A pattern that matches from one of its prefixes on; `group` is the secret part of it."""

    pattern: re.Pattern[str]
    group: int = 0
    valid: Callable[[str], bool] | None = None


#: Plugins of detect-secrets: module, class, the literal beginnings of what they find, the group of the secret.
_PLUGINS: tuple[tuple[str, str, str, int], ...] = (
    ("aws", "AWSKeyDetector", "AKIA ASIA ABIA ACCA A3T", 0),
    ("azure_storage_key", "AzureStorageKeyDetector", "AccountKey=", 0),
    ("basic_auth", "BasicAuthDetector", "://", 1),
    ("github_token", "GitHubTokenDetector", "ghp_ gho_ ghu_ ghs_ ghr_", 0),
    (
        "gitlab_token",
        "GitLabTokenDetector",
        "glpat- gldt- glft- glsoat- glrt- GR1348941 glcbt- glimt- glptt- glagent- gloas-",
        0,
    ),
    ("jwt", "JwtTokenDetector", "eyJ", 0),
    ("openai", "OpenAIDetector", "sk-", 0),
    ("pypi_token", "PypiTokenDetector", "pypi-", 0),
    ("sendgrid", "SendGridDetector", "SG.", 0),
    ("slack", "SlackDetector", "xox https://hooks.slack.com/", 0),
    ("square_oauth", "SquareOAuthDetector", "sq0csp-", 0),
    ("stripe", "StripeDetector", "rk_live_ sk_live_", 0),
)
#: Shapes that came after the plugins, or that they read too narrowly.
_MORE: tuple[tuple[str, str, int], ...] = (
    ("github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}", 0),
    ("hf_", r"hf_[A-Za-z0-9]{30,60}(?!\w)", 0),
    ("sk-", r"sk-(?:proj|ant|svcacct|admin)-[A-Za-z0-9_-]{20,}", 0),
    ("npm_", r"npm_[A-Za-z0-9]{36}(?!\w)", 0),
    ("xapp-", r"xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]+", 0),
    ("AIza", r"AIza[A-Za-z0-9_-]{35}(?!\w)", 0),
    ("://", r"://[^\s/:@?#\[\]\"'<>]{1,80}:([^\s/@\"'<>]{1,200})@(?=[\w\[])", 1),
)


def tokens(text: str) -> Iterator[Span]:
    """Where tokens of known shape stand, in order of their beginnings."""
    prefixes, shapes = _shapes()
    for hit in prefixes.finditer(text):
        start = hit.start()
        if hit[0] != "://" and start and text[start - 1].isalnum():
            continue
        for shape in shapes[hit[0]]:
            found = shape.pattern.match(text, start, start + _LONGEST)
            if found and not is_placeholder(found[shape.group]) and (shape.valid is None or shape.valid(found[0])):
                yield found.span(shape.group)


@lru_cache(maxsize=1)
def _shapes() -> tuple[re.Pattern[str], dict[str, list[_Shape]]]:
    """A pattern of all prefixes, and the shapes by prefix. The plugins bring a web client along: imported late."""
    shapes: dict[str, list[_Shape]] = defaultdict(list)
    for prefix, pattern, group in _MORE:
        shapes[prefix].append(_Shape(re.compile(pattern), group))
    for module, name, prefixes, group in _PLUGINS:
        plugin = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)
        valid = getattr(plugin, "is_formally_valid", None)
        for prefix in prefixes.split():
            shapes[prefix] += [_Shape(pattern, min(group, pattern.groups), valid) for pattern in plugin.denylist]
    return re.compile("|".join(map(re.escape, sorted(shapes, key=len, reverse=True)))), dict(shapes)
