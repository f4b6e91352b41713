"""DecoderService on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from permille.api.decoder.v1 import decoder_pb2, decoder_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.decoder.domain.manifest import parse_session_name
from permille.decoder.domain.query import QueryEngine
from permille.decoder.domain.session_export import ExportFormat, ExportWish, SessionExports
from permille.decoder.service.binary_upload import BinaryUpload
from permille.decoder.service.session_deletion import SessionDeletion
from permille.decoder.service.session_upload import SessionUpload
from permille.mesh.auth import OPERATE, OPERATE_LOCAL, VIEW, Access, identity_of
from permille.mesh.errors import InvalidArgument
from permille.mesh.operation_runner import OperationRunner
from permille.mesh.operation_service import OperationMethods
from permille.mesh.operations import OperationStore

ACCESS: dict[str, Access] = {
    "Decode": OPERATE,
    "GetOperation": VIEW,
    "ListOperations": VIEW,
    "WaitOperation": VIEW,
    "CancelOperation": OPERATE,
    "Query": VIEW,
    "Export": VIEW,
    "UploadBinary": OPERATE,
    "UploadSession": OPERATE,
    "DeleteSession": OPERATE_LOCAL,
}
_FORMATS = {
    decoder_pb2.FORMAT_PERFETTO: ExportFormat.PERFETTO,
    decoder_pb2.FORMAT_SPEEDSCOPE: ExportFormat.SPEEDSCOPE,
    decoder_pb2.FORMAT_FOLDED: ExportFormat.FOLDED,
    decoder_pb2.FORMAT_PPROF: ExportFormat.PPROF,
    decoder_pb2.FORMAT_CSV: ExportFormat.CSV,
    decoder_pb2.FORMAT_PARQUET: ExportFormat.PARQUET,
    decoder_pb2.FORMAT_JSON: ExportFormat.JSON,
}


class DecoderService(OperationMethods, decoder_pb2_grpc.DecoderServiceServicer):
    """Starts decodes, which `DecodeWork` does, and answers from the tables."""

    def __init__(
        self,
        operations: OperationStore,
        runner: OperationRunner[decoder_pb2.DecodeRequest],
        *,
        queries: QueryEngine,
        exports: SessionExports,
        uploads: BinaryUpload,
        sessions: SessionUpload,
        deletion: SessionDeletion,
    ) -> None:
        super().__init__(operations)
        self._runner = runner
        self._queries = queries
        self._exports = exports
        self._uploads = uploads
        self._sessions = sessions
        self._deletion = deletion

    async def Decode(  # noqa: N802
        self, request: decoder_pb2.DecodeRequest, context: Any
    ) -> decoder_pb2.DecodeResponse:
        """Begins to decode a session, or finds the operation that this request_id began."""
        parse_session_name(request.session)
        progress = operation_pb2.Progress(stage="WAITING")
        operation = await self._runner.start(request, request.request_id, progress, caller=identity_of(context).name)
        return decoder_pb2.DecodeResponse(operation=operation)

    async def Query(  # noqa: N802
        self, request: decoder_pb2.QueryRequest, context: Any
    ) -> AsyncIterator[decoder_pb2.QueryResponse]:
        """The answer as parts of one Arrow IPC stream."""
        async with aclosing(self._queries.run(request.sql, request.max_rows)) as parts:
            async for part in parts:
                yield decoder_pb2.QueryResponse(arrow_ipc=part.arrow_ipc, truncated=part.truncated)

    async def Export(  # noqa: N802
        self, request: decoder_pb2.ExportRequest, context: Any
    ) -> AsyncIterator[decoder_pb2.ExportResponse]:
        """One session as a file, in pieces."""
        wish = _export_wish(request)
        file_name = wish.file_name
        async with aclosing(self._exports.run(wish)) as pieces:
            async for piece in pieces:
                yield decoder_pb2.ExportResponse(
                    data=piece.data,
                    file_name=file_name,
                    omitted_calls=piece.omitted_calls,
                    deeper_calls=piece.deeper_calls,
                )
                file_name = ""

    async def UploadBinary(  # noqa: N802
        self, request_iterator: AsyncIterator[decoder_pb2.UploadBinaryRequest], context: Any
    ) -> decoder_pb2.UploadBinaryResponse:
        """Adds a binary or a debug file to the repository."""
        return await self._uploads.receive(request_iterator)

    async def UploadSession(  # noqa: N802
        self, request_iterator: AsyncIterator[decoder_pb2.UploadSessionRequest], context: Any
    ) -> decoder_pb2.UploadSessionResponse:
        """Stores what another tool recorded, as a session."""
        return await self._sessions.receive(request_iterator)

    async def DeleteSession(  # noqa: N802
        self, request: decoder_pb2.DeleteSessionRequest, context: Any
    ) -> decoder_pb2.DeleteSessionResponse:
        """Deletes a session for good."""
        freed = await self._deletion.delete(request.name)
        return decoder_pb2.DeleteSessionResponse(deleted_objects=freed.objects, freed_bytes=freed.size_bytes)


def _export_wish(request: decoder_pb2.ExportRequest) -> ExportWish:
    _, session_id = parse_session_name(request.session)
    kind = _FORMATS.get(request.format)
    if kind is None:
        raise InvalidArgument(
            f"format {request.format} is none that a session can be exported to",
            reason="EXPORT_FORMAT",
            help=f"choose one of {', '.join(kind.name.lower() for kind in ExportFormat)}",
            metadata={"field": "format"},
        )
    return ExportWish(session_id, kind, request.table, request.max_calls, request.max_depth, request.session)
