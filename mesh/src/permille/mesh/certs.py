"""Certificates for mutual TLS: an authority of one's own, services, and people with roles."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from permille.mesh.auth import Role
from permille.mesh.credentials import server_name
from permille.mesh.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    PermilleError,
    PermissionDenied,
    ResourceExhausted,
)
from permille.mesh.no_room import is_no_room

# RFC 1123, section 2.1; the first label may be a wildcard.
_HOST = re.compile(r"(?=.{1,253}$)(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,62}")
_AUTHORITY = "ca"
# Of a common name (RFC 5280, ub-common-name), beside what is put behind it.
_LONGEST_AUTHORITY = 64 - len(" authority")


@dataclass(frozen=True)
class Issued:
    """Where a certificate (mode 0644) and its private key (mode 0600) were written."""

    certificate: Path
    key: Path


def create_authority(folder: Path, *, name: str = "permille", days: int = 3650) -> Issued:
    """A new certificate authority: `ca.crt` and `ca.key`.

    Raises `AlreadyExists`, `InvalidArgument`, and as `_files` does.
    """
    if not (name.isprintable() and 1 <= len(name) <= _LONGEST_AUTHORITY):
        raise InvalidArgument(
            f"{name!r} cannot name an authority",
            reason="CERTIFICATE_NAME",
            help=f"use 1 to {_LONGEST_AUTHORITY} characters that can be printed",
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    builder = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    return _write(folder, _AUTHORITY, key, builder.sign(key, hashes.SHA256()))


def issue_service(
    folder: Path, services: Sequence[str], *, node: str, hosts: Iterable[str] = (), days: int = 365
) -> Issued:
    """A certificate with the role agent for the services of one node: `<node>.crt` and `<node>.key`.

    It serves as `<service>.permille` for each service, as localhost, and as every name or address in `hosts`.
    Raises `NotFound` without an authority in the folder, `AlreadyExists`, `InvalidArgument`.
    """
    names = [server_name(service) for service in services] + ["localhost", "127.0.0.1", *hosts]
    alternatives = x509.SubjectAlternativeName([_alternative(name) for name in dict.fromkeys(names)])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _issue(folder, node, roles=(Role.AGENT,), usages=usages, alternatives=alternatives, days=days)


def issue_user(folder: Path, name: str, *, roles: Sequence[Role], days: int = 365) -> Issued:
    """A certificate for a person or another system: `<name>.crt` and `<name>.key`; it cannot pass for a service.

    Raises `NotFound` without an authority in the folder, `AlreadyExists`, `InvalidArgument`.
    """
    return _issue(folder, name, roles=roles, usages=[ExtendedKeyUsageOID.CLIENT_AUTH], alternatives=None, days=days)


def _issue(
    folder: Path,
    name: str,
    *,
    roles: Sequence[Role],
    usages: list[x509.ObjectIdentifier],
    alternatives: x509.SubjectAlternativeName | None,
    days: int,
) -> Issued:
    if not _NAME.fullmatch(name) or name == _AUTHORITY:
        raise InvalidArgument(
            f"{name!r} cannot name a certificate",
            reason="CERTIFICATE_NAME",
            help="use 1 to 63 letters, digits and @ . _ -, beginning with a letter or digit, and not `ca`",
        )
    if not 1 <= days <= 3650:
        raise InvalidArgument(
            f"a certificate cannot be valid for {days} days", reason="CERTIFICATE_DAYS", help="choose 1 to 3650 days"
        )
    authority, authority_key = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        + [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value) for role in roles]
    )
    builder = (
        _builder(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return _write(folder, name, key, builder.sign(authority_key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # Clocks of machines differ a little.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not _HOST.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} is no host's name and no address",
            reason="CERTIFICATE_HOST",
            help="give a name as DNS has it, in ASCII (xn--… for others), or an IP address, without port",
        )
    return x509.DNSName(name)


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        with _files(folder):
            certificate = x509.load_pem_x509_certificate((folder / f"{_AUTHORITY}.crt").read_bytes())
            key = serialization.load_pem_private_key((folder / f"{_AUTHORITY}.key").read_bytes(), password=None)
    except NotFound:
        raise NotFound(
            f"there is no certificate authority in {folder}",
            reason="AUTHORITY_MISSING",
            help=f"create it first: `permille certs authority --folder {folder}`",
            metadata={"folder": str(folder)},
        ) from None
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the authority in {folder} cannot be read: {error}",
            reason="AUTHORITY_KEY",
            help="use an authority that `permille certs authority` has made",
            metadata={"folder": str(folder)},
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidArgument(
            f"the authority's key in {folder} is not an elliptic-curve key",
            reason="AUTHORITY_KEY",
            help="use an authority that `permille certs authority` has made",
        )
    return certificate, key


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Issued:
    issued = Issued(folder / f"{name}.crt", folder / f"{name}.key")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with _files(folder):
        for path in (issued.certificate, issued.key):
            if path.exists():
                raise AlreadyExists(
                    f"{path} exists",
                    reason="CERTIFICATE_EXISTS",
                    help="choose another name or folder, or move the old files away",
                    metadata={"path": str(path)},
                )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create(issued.key, private, 0o600)
        try:
            _create(issued.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        except OSError:
            # Alone it is of no use, and in the way of the next attempt.
            issued.key.unlink()
            raise
    return issued


def _create(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


@contextmanager
def _files(folder: Path) -> Iterator[None]:
    """Raises `NotFound`, `PermissionDenied`, `ResourceExhausted` for what the file system refuses."""
    try:
        yield
    except OSError as error:
        kind: type[PermilleError] = PermissionDenied
        if is_no_room(error):
            kind = ResourceExhausted
        elif isinstance(error, FileNotFoundError | NotADirectoryError | FileExistsError):
            kind = NotFound
        raise kind(
            f"{error.filename or folder}: {error.strerror}",
            reason="CERTIFICATE_FOLDER",
            help="choose a folder with --folder that you can read and write, with room",
            metadata={"folder": str(folder)},
        ) from None
