"""The Dagster code location: everything in `assets` and `sensors`, and the facility they work on."""

import dagster as dg

import assets
import sensors
from assets.resources import Facility

defs = dg.Definitions.merge(
    dg.load_definitions_from_package_module(assets),
    dg.load_definitions_from_package_module(sensors),
    # Steps hand a lock and an open catalog on to each other, and import heavy libraries once: one process per run.
    dg.Definitions(resources={"facility": Facility()}, executor=dg.in_process_executor),
)
