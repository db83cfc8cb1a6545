"""Zip containers (Office files are some): how much they unpack to is found out before any parser opens them."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable

from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

_STEP = 1 << 18
_MAX_MEMBERS = 100_000

#: Called with the name of a member and each stretch of its bytes, in order; an empty stretch ends the member.
Look = Callable[[str, bytes], None]


def is_zip(data: bytes) -> bool:
    return data[:4] in (b"PK\x03\x04", b"PK\x05\x06")


def check_unpacked(data: bytes, limits: Limits, look: Look | None = None) -> None:
    """Unpack a zip file stretch by stretch, keeping nothing, and stop where it exceeds `limits.max_unpacked_mb`.

    The sizes that a zip file states of itself are not believed: a hostile one states small ones.

    Raises:
        UnreadableError: it unpacks to more than the limit, is damaged or is protected by a password.
    """
    budget = int(limits.max_unpacked_mb * 1e6)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > _MAX_MEMBERS:
                raise UnreadableError(f"holds {len(members)} files, more than {_MAX_MEMBERS}", remedy="unpack it")
            for member in members:
                if member.flag_bits & 1:
                    raise UnreadableError("protected by a password", remedy="save it without one")
                # The stated size would end the reading; one well beyond the budget lets the data end it.
                member.file_size = budget + 2 * _STEP
                with archive.open(member) as stream:
                    while stretch := stream.read(_STEP):
                        budget -= len(stretch)
                        if budget < 0:
                            raise UnreadableError(
                                f"unpacks to more than limits.max_unpacked_mb ({limits.max_unpacked_mb:g})",
                                remedy="raise the limit or split the file",
                            )
                        if look:
                            look(member.filename, stretch)
                    if look:
                        look(member.filename, b"")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError) as error:
        raise UnreadableError(f"damaged zip container ({error})", remedy="open it and save it again") from error
