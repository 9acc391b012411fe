"""Models of the hub, fetched by the genuine library from a stand-in on this machine.

The library reads its environment when it is imported, so each test is one process and looks at much.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus.hub_server import Hub
from safetensors.numpy import save_file

from nanoeuler.errors import UserError
from nanoeuler.weights.hub import find_model, is_model_id

pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")

START = """
import json, os, sys
from pathlib import Path
from nanoeuler.errors import UserError
from nanoeuler.weights.hub import find_model
def failure(name, **options):
    try:
        find_model(name, **options)
    except UserError as error:
        return str(error)
def names(folder):
    return sorted(path.name for path in folder.iterdir())
"""
CONFIG = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "tie_word_embeddings": True,
}
TENSORS = {
    "model.embed_tokens.weight": np.arange(256, dtype=np.float32).reshape(32, 8),
    "model.norm.weight": np.ones(8, np.float32),
}
INDEX = "model.safetensors.index.json"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Give a stand-in of the hub, with no model yet."""
    server = Hub(tmp_path / "hub", tmp_path / "hub_home")
    yield server
    server.close()


def write_model(hub: Hub, name: str, files: dict[str, Any] | None = None, **config: Any) -> Path:
    """Put a model with one file of weights into the hub, or with the given files instead; return its folder."""
    folder = hub.folder / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config), encoding="utf-8")
    for file, content in (files or {}).items():
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    if files is None:
        save_file(TENSORS, folder / "model.safetensors")
    return folder


def run(hub: Hub, code: str) -> Any:
    """Return what the code prints as JSON; the process must end well and silent."""
    done = hub.run(START + code)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def fetched(hub: Hub) -> list[str]:
    """Return the names of the files that were sent, in order."""
    return [request.split()[1].rpartition("/")[2] for request in hub.requests if request.startswith("GET /owner")]


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("owner/name", True),
        ("HuggingFaceTB/SmolLM2-135M", True),
        ("owner/name@refs/pr/1", True),
        ("owner/name@v1.0", True),
        ("name", False),
        ("a/b/c", False),
        ("./name", False),
        ("../name", False),
        ("owner/name@", False),
        ("owner/na me", False),
        ("owner/näme", False),
    ],
)
def test_what_could_be_an_id(text: str, is_id: bool) -> None:
    assert is_model_id(text) == is_id


def test_what_is_no_id_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'a/b/c' is not the id of a model: that is owner/name, or owner/name@revision"):
        find_model("a/b/c")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"owner/name: .* takes huggingface_hub: pip install -e '\.\[hub\]'"):
        find_model("owner/name")


def test_what_is_wanted_is_fetched_once_and_nothing_else(hub: Hub) -> None:
    folder = write_model(hub, "owner/model")
    others = ["pytorch_model.bin", "README.md", "model.gguf", "onnx.json"]
    wanted = ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
    for name in [*others, *wanted]:
        (folder / name).write_text("{}", encoding="utf-8")
    save_file(TENSORS, folder / "consolidated.safetensors")
    commit = hub.commit("owner/model")
    got = run(
        hub,
        """
small = find_model("owner/model", weights=False)
before = names(small)
folder = find_model("owner/model")
again = find_model("owner/model@main")
print(json.dumps([before, names(folder), folder.name, str(small) == str(folder) == str(again)]))
""",
    )
    wanted.append("config.json")
    assert got == [sorted(wanted), sorted([*wanted, "model.safetensors"]), commit, True]
    assert fetched(hub) == ["config.json", *sorted(wanted[:-1]), "model.safetensors"]
    here = next((hub.home / "hub").rglob(f"{commit}/model.safetensors"))
    assert here.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_model_in_many_files(hub: Hub) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    folder = write_model(hub, "owner/large", {INDEX: {"weight_map": {"x": first, "y": second, "z": first}}})
    for name in (first, second, "extra.safetensors"):
        save_file(TENSORS, folder / name)
    got = run(hub, 'print(json.dumps(names(find_model("owner/large"))))')
    assert got == sorted(["config.json", first, second, INDEX])


def test_without_the_hub_what_is_in_the_cache_serves(hub: Hub) -> None:
    write_model(hub, "owner/model", None)
    (hub.folder / "owner/model/tokenizer.json").write_text("{}", encoding="utf-8")
    first = run(hub, 'print(json.dumps(names(find_model("owner/model"))))')
    offline = 'os.environ["HF_HUB_OFFLINE"] = "1"\n'
    got = run(hub, offline + 'print(json.dumps([names(find_model("owner/model")), failure("owner/other")]))')
    assert got == [first, "owner/other: HF_HUB_OFFLINE is set, and not all of it is in the cache"]
    hub.misbehave("/api/models", status=503)
    assert run(hub, 'print(json.dumps(names(find_model("owner/model"))))') == first
    hub.close()
    assert run(hub, 'print(json.dumps(names(find_model("owner/model"))))') == first


def test_a_later_revision_is_another_folder_and_the_earlier_can_be_named(hub: Hub) -> None:
    folder = write_model(hub, "owner/model")
    commit = hub.keep_commit("owner/model")
    save_file({name: tensor + 1 for name, tensor in TENSORS.items()}, folder / "model.safetensors")
    new = hub.commit("owner/model")
    got = run(
        hub,
        f"""
print(json.dumps([find_model("owner/model").name, find_model("owner/model@{commit}").name]))
""",
    )
    assert got == [new, commit]
    assert new != commit


def test_what_was_cut_off_is_gone_on_with(hub: Hub) -> None:
    folder = write_model(hub, "owner/model")
    hub.misbehave(r"model\.safetensors", sent=300, times=2)  # the first request only asks for its size
    small_pieces = "from huggingface_hub import constants\nconstants.DOWNLOAD_CHUNK_SIZE = 100\n"
    got = run(hub, small_pieces + 'print(json.dumps(str(find_model("owner/model") / "model.safetensors")))')
    assert Path(got).read_bytes() == (folder / "model.safetensors").read_bytes()
    assert any(request.endswith("model.safetensors bytes=300-") for request in hub.requests)


def test_an_architecture_that_we_lack_is_refused_before_any_weight_is_asked_for(hub: Hub) -> None:
    write_model(hub, "owner/experts", model_type="mixtral", num_local_experts=8)
    got = run(hub, 'print(json.dumps(failure("owner/experts")))')
    assert got.startswith("owner/experts: ")
    assert "mixtral" in got
    assert not [request for request in hub.requests if "safetensors" in request]


def test_what_is_said_of_models_that_cannot_be_had(hub: Hub) -> None:
    for name in ("private", "gated", "secret", "away", "wrong"):
        write_model(hub, f"owner/{name}")
    hub.misbehave("owner/private", status=401, headers={"X-Error-Code": "RepoNotFound"})
    hub.misbehave("owner/gated/", status=403, headers={"X-Error-Code": "GatedRepo"})
    hub.misbehave("owner/secret/.*safetensors", status=401)
    hub.misbehave("owner/away", status=500)
    hub.misbehave("owner/wrong/.*safetensors", wrong=True)
    write_model(hub, "owner/pickled", {"pytorch_model.bin": "x", "pytorch_model-00002.bin": "x"})
    write_model(hub, "owner/llama_cpp", {"model-q4.gguf": "x"})
    write_model(hub, "owner/empty", {"README.md": "x"})
    write_model(hub, "owner/adapter", {"adapter_model.safetensors": "x"})
    (hub.folder / "owner/adapter/config.json").unlink()
    write_model(hub, "owner/torn", {INDEX: {"weight_map": {"x": "model-1.safetensors"}}})
    write_model(hub, "owner/outside", {INDEX: {"weight_map": {"x": "../../../../etc/passwd"}}})
    names = "nothing private gated secret away wrong pickled llama_cpp empty adapter torn outside wrong@v9"
    got = run(hub, f'print(json.dumps({{name: failure("owner/" + name) for name in "{names}".split()}}))')
    expected = {
        "nothing": "owner/nothing: the hub knows no such model (404); if it is a private one, put a token",
        "private": "owner/private: the hub knows no such model (401); if it is a private one, put a token",
        "gated": "owner/gated: the hub does not let us have it (403): accept the conditions on its page",
        "secret": "owner/secret: the hub does not let us have it (401)",
        "away": "owner/away: the hub does not answer as it should: status 500 (tried 3 times)",
        "wrong": "owner/wrong: model.safetensors was damaged on its way: its sha256 is",
        "pickled": "owner/pickled: its weights are in pytorch_model-00002.bin, a pickle, which can run any code",
        "llama_cpp": "owner/llama_cpp: no model.safetensors in it; model-q4.gguf is not read from here",
        "empty": "owner/empty: no weights in it",
        "adapter": "owner/adapter: it has no config.json, so it is no model that can be loaded",
        "torn": f"{INDEX}: it speaks of model-1.safetensors, and there is no such file",
        "outside": f"{INDEX}: it speaks of ../../../../etc/passwd, and there is no such file",
        "wrong@v9": "owner/wrong: the hub knows no revision 'v9' of it; after the @ stands a branch, tag or commit",
    }
    assert [f"{name}: {got[name]}" for name, part in expected.items() if part not in (got[name] or "")] == []
    assert not list((hub.home / "hub").rglob("models--owner--wrong/**/model.safetensors"))
