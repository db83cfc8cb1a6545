"""What all tests share: where the public sample data lies, if it does."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy with other things makes an example slow, not wrong.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the public sample data; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no sample data at {SHARED}")
    return SHARED
