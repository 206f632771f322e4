"""What was said so far, and files of it.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}

A list of messages alone is read too. Nothing here knows of a terminal or of a model.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from outdraft.options.errors import RequestError
from outdraft.options.new_file import new_file
from outdraft.options.paths import user_path

_ROLES = ("system", "user", "assistant")


@dataclass(slots=True)
class Conversation:
    """Messages in order: perhaps one of the system, then questions and answers in turn."""

    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, question: str) -> None:
        self.messages.append({"role": "user", "content": question})

    def answer(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})

    @property
    def asked(self) -> list[dict[str, str]]:
        """All up to the last question; empty where there is none."""
        places = [place for place, one in enumerate(self.messages) if one["role"] == "user"]
        return self.messages[: places[-1] + 1] if places else []

    def take_back(self) -> str | None:
        """Forget the last question and what was answered; returns the question. None: there is none."""
        asked = self.asked
        if not asked:
            return None
        self.messages = asked[:-1]
        return asked[-1]["content"]

    @property
    def system(self) -> str:
        """The message of the system; empty where there is none."""
        first = self.messages[:1]
        return first[0]["content"] if first and first[0]["role"] == "system" else ""

    @system.setter
    def system(self, text: str) -> None:
        rest = self.messages[bool(self.system) :]
        self.messages = [{"role": "system", "content": text}, *rest] if text else rest

    def reset(self) -> None:
        """Back to the message of the system."""
        self.messages = self.messages[: bool(self.system)]

    def save(self, name: str) -> None:
        """Write the file whole; of files that stand there only conversations are replaced. Raises `RequestError`."""
        path = user_path(name, error=RequestError)
        if path.exists():
            _read(name)
        with new_file(path, error=RequestError) as beside:
            beside.write_text(json.dumps({"messages": self.messages}, ensure_ascii=False, indent=1) + "\n", "utf-8")

    def load(self, name: str) -> None:
        """Go on with the conversation of a file. Raises `RequestError`, and has then changed nothing."""
        self.messages = _read(name)


def _read(name: str) -> list[dict[str, str]]:
    path = user_path(name, error=RequestError)
    try:
        told: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror}; give a file of /save") from error
    except (ValueError, RecursionError):
        told = None
    found = told.get("messages") if isinstance(told, dict) else told
    if not isinstance(found, list) or not all(map(_is_message, found)):
        raise RequestError(f"{name} holds no conversation: give a file of /save, or another name to save to")
    return [{"role": one["role"], "content": one["content"]} for one in found]


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and one.get("role") in _ROLES and isinstance(one.get("content"), str)
