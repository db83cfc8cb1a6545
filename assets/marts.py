"""One asset per file of `dbt_like_sql`, with the lineage that its SQL states; its data tests are checks."""

import dagster as dg

from aps_rag_pipeline.stores.sql_models import SqlModel, load_models
from assets.reporting import stage_result
from assets.resources import Facility

#: The asset that writes each table a model may select from.
_WRITERS = {"records": "dense_index", "edges": "knowledge_graph"}


def _key(name: str) -> dg.AssetKey:
    return dg.AssetKey(_WRITERS.get(name, name))


def _model_asset(model: SqlModel) -> dg.AssetsDefinition:
    @dg.asset(
        name=model.name,
        group_name="marts" if model.layer == "marts" else "staging",
        deps=sorted({_key(name) for name in model.references}),
        description=f"{model.description}\n\n```sql\n{model.sql}\n```",
        kinds={"duckdb", "sql"},
        owners=["team:data-engineering"],
        code_version=model.code_version,
    )
    def mart(context: dg.AssetExecutionContext, facility: Facility) -> dg.MaterializeResult:
        import pyarrow.parquet as pq

        from aps_rag_pipeline.sync.marts import build_mart, mart_path

        workspace = facility.writing(f"run {context.run_id}")
        report = build_mart(workspace, model)
        path = mart_path(workspace, model.name)
        file = pq.ParquetFile(path)
        columns = [dg.TableColumn(field.name, str(field.type)) for field in file.schema_arrow]
        return stage_result(
            context,
            report,
            **{
                "dagster/row_count": file.metadata.num_rows,
                "dagster/uri": str(path),
                "dagster/column_schema": dg.TableSchema(columns),
            },
        )

    return mart


def _data_test(test: SqlModel, tested: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=_key(tested), name=test.name, description=test.description)
    def check(context: dg.AssetCheckExecutionContext, facility: Facility) -> dg.AssetCheckResult:
        from aps_rag_pipeline.sync.marts import failing_rows

        rows = failing_rows(facility.writing(f"check of run {context.run.run_id}"), test)
        return dg.AssetCheckResult(
            passed=not rows,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"failing_rows": dg.MetadataValue.json([{k: str(v) for k, v in row.items()} for row in rows])},
        )

    return check


_models = load_models()
mart_assets = [_model_asset(model) for model in _models.values() if model.layer != "tests"]
mart_checks = [_data_test(model, model.references[0]) for model in _models.values() if model.layer == "tests"]
