"""`outdraft completion`: a script that lets a shell complete commands, flags and names of methods.

The script is a list of words, made from the options; it starts no Python when a key is pressed.
"""

import sys
from dataclasses import dataclass

from outdraft.cli.options import argument, flag_fields, flag_name
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

SHELLS = ("bash", "zsh", "fish")
SUMMARY = "print a completion script for a shell"
EPILOG = """Examples:
  source <(outdraft completion bash)                                      # in ~/.bashrc
  source <(outdraft completion zsh)                                       # in ~/.zshrc
  outdraft completion fish > ~/.config/fish/completions/outdraft.fish"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The shell for which a script is written."""

    shell: str | None = argument(None, "bash, zsh or fish")


def run(options: Options) -> int:
    """Write the script to standard output."""
    if options.shell not in SHELLS:
        asked = "it needs a shell" if options.shell is None else f"{options.shell!r} is no shell that it knows"
        raise ConfigError(f"{asked}{near_miss(options.shell, SHELLS)}: outdraft completion {'|'.join(SHELLS)}")
    sys.stdout.write(fish() if options.shell == "fish" else bash(zsh=options.shell == "zsh"))
    return 0


def bash(*, zsh: bool = False) -> str:
    """For bash; zsh understands it through bashcompinit."""
    head, flags, values = _words()
    lines = ["autoload -U +X compinit bashcompinit; compinit; bashcompinit"] if zsh else []
    lines += [
        "_outdraft() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '    case "$before" in',
        *(f'        {name}) words="{" ".join(known)}" ;;' for name, known in values.items()),
        "    esac",
        '    if [ -z "$words" ]; then',
        '        case "${COMP_WORDS[*]:1:COMP_CWORD-1} " in',
        *(f'            "{name} "*) words="{" ".join(known)}" ;;' for name, known in flags.items()),
        f'            " ") words="{" ".join(head)}" ;;',
        "        esac",
        "    fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))',
        "}",
        "complete -o filenames -F _outdraft outdraft",
    ]
    return "\n".join(lines) + "\n"


def fish() -> str:
    """The script of fish, one `complete` line for each option."""
    head, flags, values = _words()
    lines = ["complete -c outdraft -n __fish_use_subcommand -f -a '" + " ".join(head) + "'"]
    for name, known in flags.items():
        where = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for one in known:
            more = f" -x -a '{' '.join(values[one])}'" if one in values else ""
            lines.append(
                f"complete -c outdraft -n '{where}' -l {one.removeprefix('--')}{more}"
                if one[0] == "-"
                else f"complete -c outdraft -n '{where}' -f -a {one}"
            )
    return "\n".join(lines) + "\n"


def _words() -> tuple[list[str], dict[str, list[str]], dict[str, list[str]]]:
    """Commands; what may follow each command or action; values of flags that have a list of them."""
    from outdraft.cli.command import all_commands, command_names, find_command

    flags = {
        name: [f"--{flag_name(one.name)}" for one in flag_fields(command.options)] for name, command in all_commands()
    }
    flags["completion"] = list(SHELLS)
    flags["methods"] = (
        sorted({name for known in _names().values() for name in known if ":" not in name}) + flags["methods"]
    )
    flags |= {
        name: [one.name for one in actions] for name in command_names() if (actions := find_command(name).actions)
    }
    flags = dict(sorted(flags.items(), key=lambda item: -len(item[0].split())))  # an action before its command
    values = {"--dtype": ["auto", "float32", "bfloat16", "float16"], **_names()}
    return command_names(), flags, {**values, **_choices()}


def _choices() -> dict[str, list[str]]:
    """Of flags that have the same choices in every command that knows them."""
    from outdraft.cli.command import all_commands

    found: dict[str, set[tuple[str, ...]]] = {}
    for _, command in all_commands():
        for one in flag_fields(command.options):
            found.setdefault(f"--{flag_name(one.name)}", set()).add(tuple(one.metadata.get("choices") or ()))
    alike = {name: next(iter(several)) for name, several in found.items() if len(several) == 1}
    return {name: list(known) for name, known in alike.items() if known}


def _names() -> dict[str, list[str]]:
    from outdraft import zoo
    from outdraft.core.registry import KINDS, names
    from outdraft.engine.naming.recipe import recipe_names

    found = {f"--{kind}": names(kind) for kind in KINDS}
    return {**found, "--recipe": recipe_names(), "--model": [f"zoo:{name}" for name in zoo.names()]}
