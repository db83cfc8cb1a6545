"""What all tests share: where the public sample data lies, if it does."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the public sample data; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no sample data at {SHARED}")
    return SHARED
