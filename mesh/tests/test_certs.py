"""What `permille certs` writes."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from permille.mesh import certs
from permille.mesh.auth import Role
from permille.mesh.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    for issued in (
        certs.create_authority(tmp_path),
        certs.issue_service(tmp_path, ["coverage"], node="n1"),
        certs.issue_user(tmp_path, "ann", roles=[Role.VIEWER]),
    ):
        assert stat.S_IMODE(issued.key.stat().st_mode) == 0o600
        assert b"PRIVATE" not in issued.certificate.read_bytes()


def test_a_service_certificate_names_its_services_and_hosts(tmp_path: Path) -> None:
    certs.create_authority(tmp_path)
    issued = certs.issue_service(tmp_path, ["coverage", "decoder"], node="n1", hosts=["n1.example", "10.0.0.7"])
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "coverage.permille",
        "decoder.permille",
        "localhost",
        "n1.example",
    ]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.0.0.7"]


def test_a_user_certificate_carries_its_roles(tmp_path: Path) -> None:
    certs.create_authority(tmp_path)
    issued = certs.issue_user(tmp_path, "ann@example.org", roles=[Role.OPERATOR, Role.EXTERNAL])
    subject = x509.load_pem_x509_certificate(issued.certificate.read_bytes()).subject
    units = [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)]
    assert units == ["operator", "external"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    authority = certs.create_authority(tmp_path)
    before = authority.key.read_bytes()
    with pytest.raises(AlreadyExists):
        certs.create_authority(tmp_path)
    certs.issue_user(tmp_path, "ann", roles=[Role.VIEWER])
    with pytest.raises(AlreadyExists, match=r"ann\.crt"):
        certs.issue_user(tmp_path, "ann", roles=[Role.VIEWER])
    assert authority.key.read_bytes() == before


def test_without_an_authority_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        certs.issue_user(tmp_path, "ann", roles=[Role.VIEWER])
    assert "permille certs authority" in caught.value.help


@pytest.mark.parametrize("name", ["", "../ann", "ca", "a b", "-x", "x" * 64])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    certs.create_authority(tmp_path)
    with pytest.raises(InvalidArgument):
        certs.issue_user(tmp_path, name, roles=[Role.VIEWER])


@pytest.mark.parametrize(
    "host", ["", "bücher.example", "n1.example:7600", "a b", "-n1", "n1..example", "\udcff", "x" * 64]
)
def test_what_is_no_host_is_refused_and_leaves_nothing(tmp_path: Path, host: str) -> None:
    certs.create_authority(tmp_path)
    with pytest.raises(InvalidArgument, match="no host's name"):
        certs.issue_service(tmp_path, ["coverage"], node="n1", hosts=[host])
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["", "x" * 65, "\udcff"])
def test_an_authority_has_a_name_that_certificates_have_room_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot name an authority"):
        certs.create_authority(tmp_path, name=name)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with pytest.raises(NotFound, match=str(folder)):
            certs.create_authority(folder)


def test_where_a_certificate_finds_no_room_its_key_is_not_left_behind(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A key has room there, a certificate has not.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(ResourceExhausted):
            certs.create_authority(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_an_authority_that_is_damaged_is_named(tmp_path: Path) -> None:
    authority = certs.create_authority(tmp_path)
    authority.key.write_text("no key")
    with pytest.raises(InvalidArgument, match=str(tmp_path)):
        certs.issue_user(tmp_path, "ann", roles=[Role.VIEWER])
