"""Credentials in texts: what is replaced, what is left alone, and what it costs."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.masking import MASK, mask, mask_configured
from aps_rag_pipeline.content.text import decode, is_binary

PRIVATE = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAkeybytes0123456789\nabcdEFGH==\n-----END RSA PRIVATE KEY-----"
)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJvcHMifQ.c2lnbmF0dXJlc2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        # sentences, as they are posted in logs and chats
        ("FYI password for the ioc account is Tr0ub4dor&3, please rotate", "Tr0ub4dor&3"),
        ("pw: xyz", "xyz"),
        ("pw for oag1 = lattice99", "lattice99"),
        ("login opsuser / secret123", "secret123"),
        ("Login: opsuser, pw beamOn!25", "beamOn!25"),
        ("Log in as ops with Kick3rs!", "Kick3rs!"),
        ("user/pw: ops/hunter2", "hunter2"),
        ("credentials are ops / hunter2!", "hunter2!"),
        ("The root password is now swordfish.", "swordfish"),
        ("passwd (oag1 account): lattice99", "lattice99"),
        ("I changed the password to beamOn2025! after the shift", "beamOn2025!"),
        ("set the password to 'blue sky 7'", "blue sky 7"),
        ("password hunter2 still works", "hunter2"),
        ("**Password:** `hunter2`", "hunter2"),
        ("the passphrase is “correct horse battery staple”", "correct horse battery staple"),
        ("password:\nTr0ub4dor&3", "Tr0ub4dor&3"),
        ("Passwort: geheim1", "geheim1"),
        ("The door code is 4711#", "4711#"),
        ("PASSWORD = Ünïc0dé→x", "Ünïc0dé→x"),
        # assignments and command lines
        ("export TOKEN=abcdef", "abcdef"),
        ("setenv EPICS_API_KEY 99aa88", "99aa88"),
        ('db_password = "hunter2"', "hunter2"),
        ('{"apiKey": "a8f3k2l9x0"}', "a8f3k2l9x0"),
        ("set passwd {hunter2}; OPS_PASSWORD=hunter3", "hunter3"),
        ("api_key: q8Zk22LmPq0", "q8Zk22LmPq0"),
        ("sshpass -p hunter2 ssh ops@host", "hunter2"),
        ("run --password hunter2 --verbose", "hunter2"),
        ("curl -u bob:pa55 https://host/x", "pa55"),
        ("mysql -u root -phunter2 archappl", "hunter2"),
        ("GRANT ALL ON a.* TO 'b' IDENTIFIED BY 'hunter2'", "hunter2"),
        ("Authorization: Bearer abcdef12345", "abcdef12345"),
        # shapes
        ("https://bob:s3cr3t@host/x", "s3cr3t"),
        ("https://bob:p!ss$w&rd@host.gov/x", "p!ss$w&rd"),
        ("key AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("see github_pat_" + "11ABCDEFG0aBcDeFgHiJkL_x", "github_pat_11ABCDEFG0aBcDeFgHiJkL_x"),
        ("glpat-" + "abcdefghij0123456789", "glpat-abcdefghij0123456789"),
        ("xoxb-" + "123456789012-123456789012-abcdefABCDEF", "xoxb-123456789012-123456789012-abcdefABCDEF"),
        (f"cookie={JWT};", JWT),
    ],
)
def test_a_credential_is_replaced_and_its_surroundings_stay(text: str, secret: str) -> None:
    masked, count = mask(text)
    assert secret not in masked
    assert MASK in masked
    assert count >= 1
    start = text.index(secret)
    assert masked.endswith(text[start + len(secret) :])
    words_before = text[:start].split()
    assert not words_before or masked.startswith(words_before[0])


@pytest.mark.parametrize(
    "text",
    [
        "S-DCCT:CurrentM fell to 0, G:PW:Kly:pid_D_M and PW:Kly:pid_P_M look odd; BpassPs:01:VoltageM too",
        "PW: 20 ns, pw=100ns, pulse width (pw) 3.5 us, Pass: 3 of 4, first pass: good",
        "bypass: open, compass, passed 12:30, by-pass 4A12",
        "commit 3f2a9bc01d5e8f7a6b5c4d3e2f1a0b9c8d7e6f5a fixes token: handling of secret 3f2a9bc",
        "password is wrong. Password was changed yesterday; password: see the group leader; password expired",
        "the password for 8-ID is in the safe, ask Jim (x1234)",
        "Password required. No password needed for S35-BM. password protected",
        'password = os.environ["DB_PASSWORD"]; self.password = password; login(user, password=get_password())',
        "def connect(password: str | None = None, token: SecretStr = ...) -> None:",
        "export TOKEN=$OTHER; export PASSWORD=<your password>; password: ********; pw: ${PW}",
        "token: next, the token stream2, Multi-token string, secret to growth: patience",
        "WRQ 20417, part U2210207-100102.DRW, APS_1273342, P/N 4102-0310-A, PO 7F-00312, serial SN0012345",
        "/home/oag/passwd.txt and login /bin/bash, log in 2025-03-04 12:00:01, C:\\Users\\ops\\login.bat",
        "http://host:8080/a@b and https://user:password@host and ops@aps.anl.gov",
        "The access code is in the logbook of 2025. Access code review: 12 findings. pin code",
        "Login to FakeBot. Log in into arcturus:: and log on 17 sectors",
        "key: value, keyboard: broken, API key in code/apikey.env, public key: see wiki",
        "Two frequencies were identified by the vibration group",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
        MASK,
        "",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert mask(text) == (text, 0)


@pytest.mark.parametrize("quote", ["", "> ", "    "])
def test_a_private_key_goes_as_a_whole_block(quote: str) -> None:
    block = "\n".join(quote + line for line in PRIVATE.splitlines()).removeprefix(quote)
    masked, count = mask(f"here it is\n{quote}{block}\nkeep it safe")
    assert masked == f"here it is\n{quote}{MASK}\nkeep it safe"
    assert count == 1


def test_a_private_key_without_its_end_goes_as_far_as_it_looks_like_one() -> None:
    cut = PRIVATE[: PRIVATE.index("\n-----END")]
    assert mask(f"{cut}\n\nThe beam was back at noon.") == (f"{MASK}\n\nThe beam was back at noon.", 1)


def test_two_private_keys_are_two() -> None:
    assert mask(f"{PRIVATE}\nand\n{PRIVATE}") == (f"{MASK}\nand\n{MASK}", 2)


def test_the_password_column_of_a_table_is_masked() -> None:
    table = (
        "| host | user | Password | note |\n|---|---|---|---|\n"
        "| ioc1 | ops | swordfish | S35 |\n| ioc2 | ops | n/a | |\n| ioc3 | oag | Xy12 | none |\n\nafter | x | y | z"
    )
    masked, count = mask(table)
    assert count == 2
    assert "swordfish" not in masked
    assert "Xy12" not in masked
    assert "| ioc2 | ops | n/a | |" in masked
    assert masked.endswith("after | x | y | z")


def test_a_long_text_is_searched_everywhere() -> None:
    filler = "The beam was stable and nobody touched the klystron of S35.\n" * 5000
    masked, count = mask(f"{filler}pw: xyz\n{filler}password is Tr0ub4dor&3\n{filler}")
    assert count == 2
    assert masked.replace(MASK, "") == f"{filler}pw: \n{filler}password is \n{filler}"


def test_the_dotted_capital_i_moves_nothing() -> None:
    assert mask("İİİİ password: hunter2 İ") == (f"İİİİ password: {MASK} İ", 1)


def test_configured_secrets_go_wherever_they_stand() -> None:
    text = "bolt says s3cr3t-longer and s3cr3t here"
    assert mask_configured(text, ["s3cr3t", "s3cr3t-longer", "", "abc"]) == (f"bolt says {MASK} and {MASK} here", 2)
    assert mask_configured(f"{MASK} x", ["mask", "credential"]) == (f"{MASK} x", 0)


WORDS = st.sampled_from(
    [
        *("password", "pw", "login", "user", "token", "secret", "is", "for", "ops", "and", "to", "export", "passwd"),
        *(":", "=", "/", "|", "\n", " ", "'", '"', "`", "(", ")", "->", "--", "://", "@", "[", "]", "*", "**"),
        *("hunter2", "Tr0ub4dor&3", "swordfish", "S-DCCT:CurrentM", MASK, "ghp_" + "a1" * 18, PRIVATE, "x:y@z", "4711"),
    ]
)


@given(st.lists(WORDS | st.text(max_size=5), max_size=30))
@settings(max_examples=300, deadline=None)
def test_masking_twice_is_masking_once(words: list[str]) -> None:
    masked, count = mask(" ".join(words))
    assert mask(masked) == (masked, 0)
    assert count >= masked.count(MASK) - words.count(MASK)
    assert mask_configured(masked, ["hunter2"])[0].count("hunter2") == 0


@pytest.mark.parametrize(
    ("folder", "most"), [("logbook", 0), ("wiki", 0), ("work_requests", 0), ("sdds", 0), ("bely", 0)]
)
def test_real_texts_are_left_alone(shared: Path, folder: str, most: int) -> None:
    found = {}
    for file in sorted((shared / folder).rglob("*")):
        if file.is_file() and not is_binary(data := file.read_bytes()):
            _, count = mask(decode(data[:2_000_000]))
            if count:
                found[file.name] = count
    assert sum(found.values()) <= most, found


def test_names_of_process_variables_are_left_alone(shared: Path) -> None:
    with open(shared / "epics/aps_pv_list.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = [name for row in rows for name in row.values()]
    assert len(names) > 100_000
    assert mask("\n".join(names))[1] == 0
    assert mask(" trips while ".join(names[:50_000]))[1] == 0


@pytest.mark.parametrize(
    "text",
    [
        "The klystron of sector 36 tripped; S-DCCT:CurrentM fell to 0 mA at 03:12.\n" * 20_000,
        "eyJ" * 300_000,
        "a" * 1_000_000,
        "-----BEGIN PRIVATE KEY-----" * 10_000,
        "ftp://a:" * 100_000,
        "token = next(tokens)  # the password is not here, nor the secret\n" * 3_000,
        "password " * 15_000,
        "| password |\n|---|\n" * 3_000,
    ],
    ids=["prose", "prefixes", "one word", "beginnings", "urls", "code", "triggers", "tables"],
)
def test_masking_is_linear_in_time(text: str) -> None:
    start = time.process_time()
    mask(text)
    # Some 0.2 s on a laptop; the bound only tells linear from quadratic.
    assert time.process_time() - start < 4
