"""Completion of commands and options by the user's shell: its file, and the lines that make the shell read it."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class, shell_complete

from tiering.errors import InputError

VARIABLE = "_TIERING_COMPLETE"
FILES = {
    "bash": ("~/.local/share/tiering/completion.bash", "~/.bashrc", ". {file}"),
    "zsh": ("~/.local/share/tiering/completion.zsh", "~/.zshrc", "autoload -Uz compinit && compinit; . {file}"),
    "fish": ("~/.config/fish/completions/tiering.fish", None, ""),
}
"""By shell: the file of the completion, the start-up file that reads it, and the line added there."""


def install_completion(command: click.Command, shell: str) -> str:
    """Write the completion of a shell, by default the user's, and return what was done."""
    name = shell.lower() or Path(os.environ.get("SHELL", "")).name
    maker = get_completion_class(name) if name in FILES else None
    if maker is None:
        raise InputError(f"--install-completion: expected {', '.join(FILES)}, found {name!r}; name the shell")
    file, start, line = FILES[name]
    path = Path(file).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(maker(command, {}, "tiering", VARIABLE).source())
    if start is not None:
        profile, wanted = Path(start).expanduser(), line.format(file=path)
        text = profile.read_text() if profile.is_file() else ""
        if wanted not in text.splitlines():
            profile.write_text(f"{text.rstrip(chr(10))}\n{wanted}\n".lstrip())
    return f"{name} completes tiering in new shells: {path}"


def complete(command: click.Command, instruction: str) -> int:
    """Print the completions that the shell asks for; return the exit code."""
    return shell_complete(command, {}, "tiering", VARIABLE, instruction)
