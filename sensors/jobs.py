"""One job per source, which carries its changes to a release, and one for everything."""

import dagster as dg

from aps_rag_pipeline.records import SOURCES

REFRESH_ALL = "refresh_all"


def refresh_name(source: str) -> str:
    return f"refresh_{source}"


def _refresh(source: str) -> object:
    selected = dg.AssetSelection.assets(dg.AssetKey(["sources", source])).downstream()
    return dg.define_asset_job(
        refresh_name(source),
        selection=selected,
        description=f"Read what moved in {source} and carry it to a release.",
        tags={"aps_rag/source": source},
    )


refresh_jobs = [_refresh(source) for source in SOURCES]
refresh_all = dg.define_asset_job(
    REFRESH_ALL, selection=dg.AssetSelection.all(), description="Read what moved anywhere and publish one release."
)
