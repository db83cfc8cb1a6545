"""The password cookie of ELOG: the SHA-256 crypt of Unix with no salt and its usual number of rounds.

`crypt` is leaving the standard library, and no library that is kept up offers this form, so it stands here, as its
public specification (U. Drepper, "Unix crypt using SHA-256 and SHA-512") has it.
"""

from __future__ import annotations

import hashlib

_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ROUNDS = 5000
#: Bytes of the digest in the order in which they are written, three to four characters.
_ORDER = (
    (0, 10, 20), (21, 1, 11), (12, 22, 2), (3, 13, 23), (24, 4, 14),
    (15, 25, 5), (6, 16, 26), (27, 7, 17), (18, 28, 8), (9, 19, 29),
)  # fmt: skip


def elog_password(password: str) -> str:
    """What stands behind `$5$$` in the crypt of a password."""
    return sha256_crypt(password.encode(), b"")


def sha256_crypt(password: bytes, salt: bytes) -> str:
    """The 43 characters of the crypt of a password."""
    size = len(password)
    other = hashlib.sha256(password + salt + password).digest()
    mixed = hashlib.sha256(password + salt + _stretched(other, size))
    bits = size
    while bits:
        mixed.update(other if bits & 1 else password)
        bits >>= 1
    digest = mixed.digest()
    secret = _stretched(hashlib.sha256(password * size).digest(), size)
    grain = _stretched(hashlib.sha256(salt * (16 + digest[0])).digest(), len(salt))
    for turn in range(_ROUNDS):
        pieces = [secret if turn % 2 else digest]
        if turn % 3:
            pieces.append(grain)
        if turn % 7:
            pieces.append(secret)
        pieces.append(digest if turn % 2 else secret)
        digest = hashlib.sha256(b"".join(pieces)).digest()
    written = [_written(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER]
    return "".join(written) + _written(digest[31] << 8 | digest[30], 3)


def _stretched(piece: bytes, size: int) -> bytes:
    return (piece * (size // len(piece) + 1))[:size]


def _written(value: int, characters: int) -> str:
    return "".join(_ALPHABET[value >> 6 * place & 0x3F] for place in range(characters))
