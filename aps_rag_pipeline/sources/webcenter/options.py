"""What facility.yaml can say of a WebCenter feed besides its address."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from aps_rag_pipeline.sources.options import Options
from aps_rag_pipeline.sources.tabular import labels
from aps_rag_pipeline.sources.webcenter.binder import Row

Rendition = Literal["Primary", "Web"]


class WebCenterOptions(Options):
    """`options` of the feed."""

    query: str = Field("", description="which documents, in the server's Universal query syntax; empty: all")
    page_size: int = Field(200, ge=2, le=5000, description="rows asked for at a time; the server may give fewer")
    sort: str = Field("dInDate", description="field by which the server sorts the listing")
    renditions: tuple[Rendition, ...] = Field(("Primary", "Web"), min_length=1, description="which to try, in order")
    access: dict[str, list[str]] | None = Field(
        None, description="labels by `GROUP`, or `GROUP/ACCOUNT` for what lies in an account"
    )
    access_field: str = Field("", description="metadata field that holds the labels themselves, instead of `access`")
    fields: dict[str, str] = Field(
        {
            "controlled_revision_number": "xControlledRevisionNumber",
            "collection": "xCollection",
            "document_id": "xDocumentID",
        },
        description="our field -> metadata field to keep",
    )

    @model_validator(mode="after")
    def _one_rule(self) -> WebCenterOptions:
        if self.access is not None and self.access_field:
            raise ValueError("name either `access` or `access_field`")
        return self

    def labels_of(self, row: Row, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        """Who may see an item; nobody where a rule is set and does not cover it.

        A server asks for rights on the group *and* the account, so that labels of a group alone never admit to what
        lies in an account. Rights on an account hold for the accounts below it.
        """
        if self.access_field:
            return labels(row.get(self.access_field, ""))
        if self.access is None:
            return otherwise
        group, account = row.get("dSecurityGroup", "").strip(), row.get("dDocAccount", "").strip().strip("/")
        steps = account.split("/") if account else []
        names = [f"{group}/{'/'.join(steps[:depth])}" for depth in range(len(steps), 0, -1)] if steps else [group]
        found = next((self.access[name] for name in names if group and name in self.access), [])
        return tuple(sorted({label.strip() for label in found if label.strip()}))
