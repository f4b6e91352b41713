"""Who may call what: roles from the client's certificate, one table of methods for each service."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

from permille.mesh.call_interceptor import CallInterceptor, Context
from permille.mesh.errors import PermissionDenied, Unauthenticated


class Role(StrEnum):
    """What a certificate's owner is; written in the certificate's organizational unit (OU)."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AGENT = "agent"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Access:
    """The roles that may call a method; `needs` is the one to ask for."""

    needs: Role
    roles: frozenset[Role]


# Reading: everyone with a certificate.
VIEW = Access(Role.VIEWER, frozenset(Role))
# Starting and stopping work through the API that people and other systems use.
OPERATE = Access(Role.OPERATOR, frozenset({Role.OPERATOR, Role.EXTERNAL, Role.AGENT}))
# Things that people with responsibility do and other systems do not, such as deleting.
OPERATE_LOCAL = Access(Role.OPERATOR, frozenset({Role.OPERATOR, Role.AGENT}))
# What permille's own services ask of each other.
INTERNAL = Access(Role.AGENT, frozenset({Role.AGENT}))


@dataclass(frozen=True)
class Caller:
    """Who calls: the certificate's common name and its roles."""

    name: str
    roles: frozenset[Role]


class AuthInterceptor(CallInterceptor):
    """Refuses callers without the role that a method needs; a method that no table names is refused to all but agents.

    `secure` False: plain text on loopback, where everyone on this machine may do everything.
    """

    def __init__(self, *, secure: bool) -> None:
        self._secure = secure
        self._table: dict[str, Access] = {}

    def allow(self, table: Mapping[str, Access]) -> None:
        """Adds methods, by their full name `/package.Service/Method`."""
        self._table.update(table)

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Checks before the call. Raises `Unauthenticated` or `PermissionDenied`."""
        if self._secure:
            require(caller_of(context), method, self._table.get(method, INTERNAL))
        yield


def require(caller: Caller, method: str, access: Access) -> None:
    """Raises `PermissionDenied` naming the role needed when none of the caller's roles suffices."""
    if caller.roles & access.roles:
        return
    roles = ", ".join(sorted(caller.roles)) or "none"
    action = method.rpartition("/")[2]
    raise PermissionDenied(
        f"{caller.name} may not call {action}: it needs the role {access.needs}, the certificate has {roles}",
        reason="ROLE_MISSING",
        help=f"use a certificate with the role {access.needs} (`permille certs user NAME --role {access.needs}`)",
        metadata={"caller": caller.name, "roles": roles, "needs": str(access.needs), "method": method},
    )


def identity_of(context: Context) -> Caller:
    """The caller by its certificate; without TLS by its address, with every role."""
    if context.auth_context().get("x509_pem_cert"):
        return caller_of(context)
    host = unquote(context.peer()).partition(":")[2].rpartition(":")[0]
    return Caller(host or context.peer(), frozenset(Role))


def sees_all(caller: Caller) -> bool:
    """Whether it may see what others started; another system may not."""
    return bool(caller.roles & {Role.VIEWER, Role.OPERATOR, Role.AGENT})


def require_visible(caller: Caller, owner: str, what: str) -> None:
    """Raises `PermissionDenied` when another system would look at what it did not start."""
    if not sees_all(caller) and caller.name != owner:
        help_text = "with the role external one sees what one has started; a viewer sees everything"
        raise _not_yours(caller, owner, f"see {what}", help_text)


def require_own(caller: Caller, owner: str, what: str) -> None:
    """Raises `PermissionDenied` when another system would end what it did not start."""
    if not caller.roles & {Role.OPERATOR, Role.AGENT} and caller.name != owner:
        help_text = "with the role external one ends what one has started; an operator may end everything"
        raise _not_yours(caller, owner, f"end {what}", help_text)


def _not_yours(caller: Caller, owner: str, wish: str, help_text: str) -> PermissionDenied:
    return PermissionDenied(
        f"{caller.name} may not {wish}: {owner or 'another caller'} started it",
        reason="NOT_YOURS",
        help=help_text,
        metadata={"caller": caller.name, "owner": owner},
    )


def caller_of(context: Context) -> Caller:
    """The caller by its verified certificate. Raises `Unauthenticated` when it has shown none."""
    shown: Mapping[str, Any] = context.auth_context()
    subject, names = shown.get("x509_subject"), shown.get("x509_common_name")
    if not subject:
        raise Unauthenticated(
            "the caller has shown no certificate",
            reason="CERTIFICATE_MISSING",
            help="set tls_ca, tls_cert and tls_key; `permille certs` creates them",
        )
    name = bytes(names[0]).decode(errors="replace") if names else "unnamed"
    return Caller(name, roles_in(bytes(subject[0]).decode(errors="replace")))


def roles_in(subject: str) -> frozenset[Role]:
    """The roles that a certificate's subject names, as gRPC has it from OpenSSL: `OU=viewer,CN=somebody` (RFC 2253)."""
    # A separator within a value stands behind a backslash.
    parts = (part.partition("=") for part in re.findall(r"(?:\\.|[^\\,+])+", subject, re.DOTALL))
    units = {value for key, _, value in parts if key == "OU"}
    return frozenset(role for role in Role if role.value in units)
