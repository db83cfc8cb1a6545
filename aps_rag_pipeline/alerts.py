"""Telling people: one message to the configured webhook or mail address."""

from __future__ import annotations

import logging
import smtplib
from email.message import EmailMessage

import httpx

from aps_rag_pipeline.settings import Alert, Settings
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state

log = logging.getLogger(__name__)
_TIMEOUT_S = 10.0


class AlertError(Exception):
    """The message could not be delivered."""


def send(alert: Alert, subject: str, text: str) -> bool:
    """Deliver to every configured target; False when there is none.

    Raises:
        AlertError: a target did not take it.
    """
    try:
        if alert.webhook is not None:
            body = {"text": f"{subject}\n{text}", "title": subject, "message": text}
            httpx.post(alert.webhook.get_secret_value(), json=body, timeout=_TIMEOUT_S).raise_for_status()
        if alert.email_to is not None:
            message = EmailMessage()
            message["Subject"] = " ".join(subject.split())
            message["From"], message["To"] = alert.email_from, alert.email_to
            message.set_content(text)
            with smtplib.SMTP(alert.smtp_host, alert.smtp_port, timeout=_TIMEOUT_S) as server:
                server.send_message(message)
    except (httpx.HTTPError, OSError, smtplib.SMTPException) as error:
        # The address is a secret: it stands in httpx's own message.
        raise AlertError(f"the alert could not be delivered ({type(error).__name__})") from None
    return alert.webhook is not None or alert.email_to is not None


def outages(settings: Settings) -> list[state.FeedState]:
    """Feeds that fail and of which nobody has been told yet."""
    home = Home(settings.home)
    found = [state.read_feed(home, feed.source, feed.name) for feed in settings.feeds]
    return [feed for feed in found if feed.error and not feed.alerted]


def alert_outages(settings: Settings) -> list[str]:
    """Tell once per outage; gives the feeds that were told of."""
    told = []
    for feed in outages(settings):
        last = feed.succeeded_at.isoformat(timespec="minutes") if feed.succeeded_at else "never"
        text = f"{feed.error}\nLast good sync: {last}. Nothing of the feed was changed."
        if send(settings.alert, f"{settings.facility}: feed {feed.feed} ({feed.source}) cannot be read", text):
            home = Home(settings.home)
            now = state.read_feed(home, feed.source, feed.feed)  # a sync may have gone well meanwhile
            if now.error:
                now.alerted = True
                state.write_feed(home, now)
            told.append(feed.feed)
    return told
