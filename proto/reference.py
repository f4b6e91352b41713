"""Writes docs/api.md, the reference of the API, from the contracts and their comments: `python proto/reference.py`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "api.md"
# For other systems first; then what permille's own services ask of each other.
FILES = ("coverage/v1/coverage", "operation/v1/operation", "decoder/v1/decoder", "controller/v1/controller",
         "allocator/v1/allocator")  # fmt: skip
# Kept in etcd; no caller meets them.
INTERNAL = ("CoverageState", "Reservation")
HEAD = """# The API

gRPC, from the contracts in [proto](../proto/permille). `python proto/reference.py` writes this file: do not edit it.

`CoverageService` is for people and other systems, `DecoderService` for who wants more of a recording than coverage
tells. The others are what permille's own services ask of each other. Every error is a `google.rpc.Status` with
`ErrorInfo` (domain `permille`, a stable `reason`, `metadata`), `Help`, and `RetryInfo` where the same call can succeed
later. A start with a `request_id` that was used before returns what it started then.
"""
Type = FieldDescriptorProto.Type
_SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in Type.items()}
# Field numbers of descriptor.proto, by which source locations are told.
_MESSAGE, _ENUM, _SERVICE, _FIELD, _NESTED_ENUM, _METHOD, _VALUE = 4, 5, 6, 2, 4, 2, 2


def reference() -> str:
    """The document. Raises CalledProcessError with protoc's own message on a bad contract."""
    return HEAD + "".join(line + "\n" for file in described() for line in Contract(file).lines())


def described() -> list[FileDescriptorProto]:
    """The contracts with their comments, in the order of the document."""
    names = [f"permille/{name}.proto" for name in FILES]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "set"
        well_known_types = Path(grpc_tools.__file__).parent / "_proto"
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"-I{well_known_types}"]
        subprocess.run([*command, "--include_source_info", f"-o{out}", *names], cwd=HERE, check=True)
        files = {file.name: file for file in FileDescriptorSet.FromString(out.read_bytes()).file}
    return [files[name] for name in names]


class Contract:
    """One file as Markdown."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(place.path): " ".join(place.leading_comments.split()) for place in file.source_code_info.location
        }
        self._messages = {message.name: (number, message) for number, message in enumerate(file.message_type)}

    def lines(self) -> Iterator[str]:
        """Services with their calls, then the other messages."""
        yield from ("", f"## {self._file.package}")
        shown: set[str] = set(INTERNAL)
        for number, service in enumerate(self._file.service):
            yield from ("", f"### {service.name}", "", self._comments[_SERVICE, number])
            for index, method in enumerate(service.method):
                yield from (
                    "",
                    f"#### {service.name}.{method.name}",
                    "",
                    self._comments[_SERVICE, number, _METHOD, index],
                )
                sides = (("takes", method.input_type, method.client_streaming),
                         ("returns", method.output_type, method.server_streaming))  # fmt: skip
                for kind, name, streamed in sides:
                    yield from self._side(kind + " a stream of" * streamed, name)
                    shown.add(_last(name))
                for name in sorted({_last(method.input_type), _last(method.output_type)} & set(self._messages)):
                    yield from self._enums(*self._messages[name])
        for name, (number, message) in self._messages.items():
            if name not in shown:
                yield from self._message(number, message)
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum.name, enum, (_ENUM, number))

    def _side(self, kind: str, name: str) -> Iterator[str]:
        """What a call takes or returns."""
        known = self._messages.get(_last(name)) if name.startswith(f".{self._file.package}.") else None
        yield ""
        if known is None:
            yield f"*{kind}* {_link(name)}"
            return
        number, message = known
        yield f"*{kind}* `{message.name}` {self._comments.get((_MESSAGE, number), '')}".rstrip()
        yield from self._fields(number, message)

    def _message(self, number: int, message: DescriptorProto) -> Iterator[str]:
        yield from ("", f"### {message.name}", "", self._comments[_MESSAGE, number])
        yield from self._fields(number, message)
        yield from self._enums(number, message)

    def _fields(self, number: int, message: DescriptorProto) -> Iterator[str]:
        if message.field:
            yield from ("", "| field | type | |", "| --- | --- | --- |")
        for index, field in enumerate(message.field):
            told = self._comments.get((_MESSAGE, number, _FIELD, index), "").replace("|", "\\|")
            yield f"| `{field.name}` | {_type(field, message)} | {told} |".replace("|  |", "| |")

    def _enums(self, number: int, message: DescriptorProto) -> Iterator[str]:
        for index, enum in enumerate(message.enum_type):
            yield from self._enum(f"{message.name}.{enum.name}", enum, (_MESSAGE, number, _NESTED_ENUM, index))

    def _enum(self, name: str, enum: EnumDescriptorProto, place: tuple[int, ...]) -> Iterator[str]:
        yield from ("", f"### {name}", "")
        if self._comments.get(place):
            yield from (self._comments[place], "")
        for index, value in enumerate(enum.value):
            told = self._comments.get((*place, _VALUE, index), "")
            yield f"- `{value.name}`" + (f": {told}" if told else "")


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    entry = next(
        (one for one in message.nested_type if one.options.map_entry and one.name == _last(field.type_name)), None
    )
    if entry is not None:
        return "map of " + " to ".join(_type(part, entry) for part in entry.field)
    name = _link(field.type_name) if field.type_name else _SCALARS[field.type]
    return f"repeated {name}" if field.label == FieldDescriptorProto.LABEL_REPEATED else name


def _link(name: str) -> str:
    if name.startswith(".google."):
        return name.removeprefix(".")
    # Nested ones are called by both names.
    short = ".".join(part for part in name.split(".") if part[:1].isupper())
    return f"[{short}](#{short.replace('.', '').lower()})"


def _last(name: str) -> str:
    return name.rpartition(".")[2]


if __name__ == "__main__":
    DOCUMENT.write_text(reference())
