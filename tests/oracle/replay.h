/* A stream that vpt recorded, as libipt wants it: its configuration, and its code as of the decoder's position. */
#ifndef REPLAY_H
#define REPLAY_H

#include <intel-pt.h>

#include "recording.h"

/* False when libipt does not know the processor. */
bool replay_configure(const struct recording *recording, struct pt_config *config);

/* `replay` must outlive the image. One stream at a time. */
int replay_image(const struct recording *recording, struct pt_image *image);

/*
 * Goes on to the code as of the decoder's position. A mark at a TIP holds as soon as that is used up, any other when
 * tracing is enabled: libipt reads the packets in between ahead.
 */
void replay_follow(uint64_t offset, bool enabled);

#endif
