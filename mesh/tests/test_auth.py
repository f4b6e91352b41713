"""Roles are read out of the subject as OpenSSL writes it, whatever a name contains."""

from __future__ import annotations

import datetime
import shutil
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from permille.mesh.auth import Role, roles_in

KEY = ec.generate_private_key(ec.SECP256R1())


def subject_of(name: str, *units: str) -> str:
    """As OpenSSL writes it, which is what gRPC passes on."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *attributes])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, KEY.public_key(), x509.random_serial_number(), now, now)
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    command = ["openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253"]
    said = subprocess.run(command, input=certificate, stdout=subprocess.PIPE, check=True).stdout.decode()
    return said.removeprefix("subject=").removesuffix("\n")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.parametrize(
    "name", ["ann", "a,OU=agent", "a+OU=agent", "a\\", "a\\,OU=agent", '"a', " a", "#a", "ä,OU=agent\n"]
)
def test_a_name_that_looks_like_a_role_is_none(name: str) -> None:
    assert roles_in(subject_of(name, "viewer", "operator", "agents", "x,OU=agent")) == {Role.VIEWER, Role.OPERATOR}


def test_without_a_unit_there_is_no_role() -> None:
    assert roles_in("CN=agent") == roles_in("") == frozenset()
