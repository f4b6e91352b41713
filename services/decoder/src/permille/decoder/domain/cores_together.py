"""Whether the cores of a session are decoded together, so that calls go on where their threads go to another core."""

from __future__ import annotations

from permille.decoder.domain.core_segments import of_core
from permille.decoder.domain.manifest import Manifest

# One worker decodes so much in a few seconds; more is for all of them, by core.
_MOST_BYTES = 256 << 20


def cores_together(manifest: Manifest) -> bool:
    """Not where a core has overwritten what one of its threads did, or it may have been on another one unseen."""
    cores = [segment for segment in manifest.segments if of_core(segment)]
    one_stream_each = len({segment.core for segment in cores}) == len({segment.key for segment in cores})
    if not cores or not one_stream_each or (manifest.imported and not manifest.follows_threads):
        return False
    missing = manifest.switches.dropped > 0 or any(segment.overwritten for segment in cores)
    return not missing and sum(segment.size_bytes for segment in cores) <= _MOST_BYTES
