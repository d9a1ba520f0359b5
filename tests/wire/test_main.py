"""`python -m ropeway.wire`: hex and binary captures in, a line a message out, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ropeway.wire.__main__ import main
from wire.golden_files import GOLDEN, load


def test_a_hex_file_is_printed_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(GOLDEN / "plan-resume.hex")]) == 0
    assert capsys.readouterr().out == (
        "@0 plan round=41 entries=[{stream=4 op=resume first=100 rows=20 accepted=0 resume=100 generation=0}] cuts=[] "
        "tokens=[] cache=[{action=restore stream=4 key=404142434445464748494a4b4c4d4e4f}] returns=last listed=[]\n"
    )


def test_a_binary_capture_of_several_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["hello-dialer", "proof-dialer", "describe-fields", "ready-plain", "rows-part", "tokens-two", "done-acks"]
    names += ["fate-fail", "probe-small", "echo-plain"]
    capture = tmp_path / "capture.bin"
    capture.write_bytes(b"".join(load(name).raw for name in names))
    assert main([str(capture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [name.partition("-")[0] for name in names]
    assert lines[0].startswith("@0 hello rank=1 world=2 channel=control fingerprint=2424dc")
    assert lines[1].startswith("@112 proof payload=1c97bf")
    assert "row_dtype=f16 kv_dtype=bf16 backend=cuda engine=torch" in lines[2]
    assert 'taps=[18 31] release="Seilbahn \\u00fc"' in lines[2]
    assert "rows round=41 part=2 rows=3 row_bytes=16 payload=0102" in lines[4]
    assert lines[4].endswith("...(48 bytes)")
    assert lines[7].endswith('fate what=fail error=peer_lost rank=1 text="rank 1: connection reset"')
    assert lines[8].endswith("probe round=7 payload=deadbeef")


def test_a_bad_payload_is_named_and_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "capture.bin"
    capture.write_bytes(load("plan-keepalive").raw + load("plan-stream_order").raw + load("fate-stop").raw)
    assert main([str(capture)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("@0 plan")
    # The second frame begins at 64, its payload at 96, its second entry, whose id is wrong, 32 + 28 bytes later.
    assert lines[1] == "@156 error stream_order: stream 3 (continue) follows stream 3, expected to ascend"
    assert lines[2].startswith("@184 fate what=stop")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("header-bad_magic", "@0 error bad_magic: magic is 0x4c534655, expected 0x4c534654"),
        ("header-bad_version", "@4 error bad_version: version is 2, expected 1"),
        ("header-truncated", "@31 error truncated: a header of 31 bytes, expected 32"),
        ("rows-truncated", "@39 error truncated: the capture ends 1 bytes short of a rows frame"),
        ("plan-reserved_not_zero", "@60 error reserved_not_zero: reserved field of the plan is 2147483648, expected 0"),
    ],
)
def test_a_bad_header_or_end_is_named(name: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(GOLDEN / f"{name}.hex")]) == 1
    assert capsys.readouterr().out.splitlines() == [line]


def test_what_is_neither_hex_nor_binary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.hex"
    odd.write_text("54 46 # fine\n54 4 # not fine\n")
    assert main([str(odd)]) == 1
    assert "line 2" in capsys.readouterr().err
    noise = tmp_path / "noise.bin"
    noise.write_bytes(b"\xff" * 40)
    assert main([str(noise)]) == 1
    assert "bad_magic" in capsys.readouterr().out


def test_a_missing_file_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_module_runs_and_reads_the_standard_input() -> None:
    command = [sys.executable, "-m", "ropeway.wire", "-"]
    raw = load("fate-stop").raw
    done = subprocess.run(command, input=raw, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b'@0 fate what=stop error=none rank=0 text=""\n'
    done = subprocess.run(command, input=raw[:-1], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
