"""Bring-up and reading of drives on a virtual machine with emulated NVMe devices and a module that you have built.

    python tests/vm/run.py MODULE KERNEL

MODULE is BaM's libnvm.ko, KERNEL the vmlinuz it was built for. Needs g++ and qemu-system-x86_64.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
EXT, CPP = ROOT / "ext", ROOT / "tests" / "cpp"
PAGES, PAGE, SECONDS = 400, 4096, 300


def main(module: str, kernel: str) -> int:
    """Run the machine; print what it says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [ROOT / "tests" / "vm" / "init.cpp", CPP / "drive_lanes.cpp", *(EXT / "src" / "nvme").glob("*.cpp")]
        compiler = ["g++", "-std=c++20", "-O1", "-static", "-pthread", f"-I{EXT / 'include'}"]
        subprocess.run([*compiler, *sources, "-o", folder / "init"], check=True)
        files = {"init": (folder / "init").read_bytes(), "libnvm.ko": Path(module).read_bytes()}
        (folder / "initramfs").write_bytes(archive(files))
        drives = []
        for number in range(2):
            at = np.arange(0, PAGES // 2 * PAGE, 4, dtype=np.uint32)
            (at * np.uint32(2654435761) + np.uint32(number)).tofile(folder / f"image-{number}")
            drives += ["-drive", f"file={folder}/image-{number},if=none,id=d{number},format=raw"]
            drives += ["-device", f"nvme,drive=d{number},serial=tiering{number},max_ioqpairs=8"]
        machine = ["qemu-system-x86_64", "-machine", "q35", "-m", "512", "-smp", "2", "-nographic", "-no-reboot"]
        boot = ["-kernel", kernel, "-initrd", folder / "initramfs", "-append", "console=ttyS0 quiet panic=-1"]
        ran = subprocess.run([*machine, *drives, *boot], capture_output=True, text=True, timeout=SECONDS, check=False)
    passed = "VM: passed" in ran.stdout
    print("passed" if passed else ran.stdout[-2000:] + ran.stderr)
    return 0 if passed else 1


def archive(files: dict[str, bytes]) -> bytes:
    """Return an archive that the kernel unpacks as its first file system (cpio, format newc)."""
    parts = []
    for number, (name, content) in enumerate([*files.items(), ("TRAILER!!!", b"")], 1):
        fields = (number, 0o100755, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        parts += [head, bytes(-len(head) % 4), content, bytes(-len(content) % 4)]
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]) if len(sys.argv) == 3 else print(__doc__) or 2)
