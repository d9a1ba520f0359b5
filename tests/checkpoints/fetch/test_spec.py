"""Names of checkpoints that are elsewhere."""

from __future__ import annotations

import pytest

from ropeway.checkpoints.fetch.spec import HubSpec, WebSpec, is_remote, parse_spec, public_url


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("hf:org/name", HubSpec("org/name")),
        ("hf:org/name@v1.0", HubSpec("org/name", "v1.0")),
        ("hf:org/name@refs/pr/3:a.gguf", HubSpec("org/name", "refs/pr/3", "a.gguf")),
        ("hf:Qwen/Qwen3-0.6B-GGUF:sub/Qwen3 Q8_0.gguf", HubSpec("Qwen/Qwen3-0.6B-GGUF", "main", "sub/Qwen3 Q8_0.gguf")),
        ("https://example.org/m/a.gguf", WebSpec("https://example.org/m/a.gguf")),
        ("http://[::1]:8000/a.safetensors?download=true", WebSpec("http://[::1]:8000/a.safetensors?download=true")),
    ],
)
def test_good_names(text: str, spec: HubSpec | WebSpec) -> None:
    assert is_remote(text)
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    "text",
    [
        "hf:",
        "hf:name",
        "hf:org/name/more",
        "hf:org/name:",
        "hf:org/name@",
        "hf:../name",
        "hf:org/name:../../etc/passwd.gguf",
        "hf:org/name:/etc/passwd.gguf",
        "hf:org/name:a\nb.gguf",
        "hf:org/name:a?b.gguf",
        "https://",
        "https:///a.gguf",
        "https://[::1/a.gguf",
        "https://example.org/a.bin",
        "https://example.org/a b.gguf",
        "https://me:secret@example.org/a.gguf",
    ],
)
def test_bad_names(text: str) -> None:
    with pytest.raises(ValueError, match=r"^model: ") as caught:
        parse_spec(text)
    assert "secret" not in str(caught.value)


def test_what_is_shown_has_no_secrets() -> None:
    url = "https://me:secret@example.org:8443/a.gguf?X-Amz-Signature=secret#secret"
    assert public_url(url) == "https://example.org:8443/a.gguf"
    assert str(WebSpec("https://example.org/a.gguf?token=secret")) == "https://example.org/a.gguf"
    assert str(HubSpec("org/name", "main", "a.gguf")) == "hf:org/name:a.gguf"
    assert not is_remote("/models/a.gguf")
    assert not is_remote("demo")
