/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a program of the guest tells the bench by an instruction that does nothing, NOPL
 * NUMBER(%rax): several recordings are made in one guest, each with a truth of its own.
 */
#ifndef MARK_H
#define MARK_H

#define MARK_OPCODE		{ 0x0f, 0x1f, 0x80 }

#define MARK_NEXT_RECORDING	0x6d720001	/* no session is open */
#define MARK_HIDES_STOP		0x6d720002	/* STATUS does not tell any more of a STOP, */
#define MARK_TELLS_STOP		0x6d720003	/* or does again */
#define MARK_RECORDING_COMES	0x6d720004	/* a short one: user code is made ready */

#define mark(number) \
	__asm__ volatile(".byte 0x0f, 0x1f, 0x80\n\t.long %c0" :: "i"(number) : "memory")

#endif
