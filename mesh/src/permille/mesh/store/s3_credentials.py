"""Where the credentials of S3 come from."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from permille.mesh.store.s3_signature import Credentials

if TYPE_CHECKING:
    import botocore.credentials


class CredentialsRefusedError(Exception):
    """There are none, or nobody gives any for what is configured."""


class CredentialsAwayError(Exception):
    """Who gives them does not answer."""


class S3Credentials:
    """AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without them what botocore finds: profiles, web identities, roles.

    botocore is loaded only then: it is 7 MB of memory and more.
    """

    def __init__(self) -> None:
        self._given = _of_environment()
        self._lock = threading.Lock()
        self._found: botocore.credentials.Credentials | None = None

    def current(self) -> Credentials:
        """Those that are valid now; may ask who gives them. Raises the two errors above."""
        return self._given or self._asked()

    def _asked(self) -> Credentials:
        import botocore.session  # noqa: PLC0415 - see the class
        from botocore.exceptions import (  # noqa: PLC0415
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
            ProfileNotFound,
        )

        try:
            with self._lock:
                self._found = self._found or botocore.session.Session().get_credentials()
            if self._found is None:
                raise NoCredentialsError
            frozen = self._found.get_frozen_credentials()
        except (NoCredentialsError, PartialCredentialsError, ProfileNotFound, ClientError) as error:
            raise CredentialsRefusedError(str(error)) from error
        except BotoCoreError as error:
            raise CredentialsAwayError(str(error)) from error
        return Credentials(frozen.access_key or "", frozen.secret_key or "", frozen.token or "")


def _of_environment() -> Credentials | None:
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        return None
    return Credentials(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN", ""))
