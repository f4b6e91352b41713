/* How the last instruction of a block goes on (Intel SDM volume 2, appendix A; Processor Trace's branch classes). */
#ifndef INSN_CLASS_H
#define INSN_CLASS_H

#include <stddef.h>
#include <stdint.h>

enum insn_class {
    INSN_LINEAR,
    INSN_REPEAT, /* a string instruction with REP: QEMU enters it again for each iteration */
    INSN_COND,
    INSN_JUMP,
    INSN_CALL,
    INSN_JUMP_INDIRECT,
    INSN_CALL_INDIRECT,
    INSN_RETURN,
    INSN_FAR,    /* far jump, call, return, iret, and the kernel's sysret and sysexit */
    INSN_SYSTEM, /* leaves user mode: syscall, sysenter, int n */
};

/* The class of the instruction at `address`; *target for direct branches. */
enum insn_class insn_classify(const uint8_t *bytes, size_t size, uint64_t address, uint64_t *target);

#endif
