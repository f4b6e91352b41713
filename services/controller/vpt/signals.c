/*
 * Signal handlers. QEMU tells a plugin nothing of signals; the first block of a handler shows by the arguments that the
 * kernel's ABI gives it, and the frame below its stack pointer says what was interrupted.
 */
#include "recorder.h"

#include <signal.h>

/* QEMU's x86-64 rt_sigframe: return address, ucontext, siginfo (Linux ABI; struct sigcontext is in `uc_mcontext`). */
enum {
    FRAME_UCONTEXT = 8,
    FRAME_CONTEXT = FRAME_UCONTEXT + 40,
    FRAME_RDI = FRAME_CONTEXT + 8 * 8,
    FRAME_RSI = FRAME_CONTEXT + 9 * 8,
    FRAME_RDX = FRAME_CONTEXT + 12 * 8,
    FRAME_RSP = FRAME_CONTEXT + 15 * 8,
    FRAME_RIP = FRAME_CONTEXT + 16 * 8,
    FRAME_SIGINFO = FRAME_CONTEXT + 256 + 8,
    SIGINFO_CODE = 8,
};

#define SIGNALS 65
#define GUEST_SA_SIGINFO 4

static struct {
    uint64_t handler, flags;
} actions[SIGNALS];

/* `action` is the guest's struct sigaction: handler, flags, ... */
void signals_action(uint64_t number, uint64_t action)
{
    if (!action || !number || number >= SIGNALS)
        return;
    const uint64_t *fields = guest_memory(action);
    actions[number].handler = fields[0];
    actions[number].flags = fields[1];
}

static bool frame_at(uint64_t sp, uint64_t rdi, uint64_t rsi, uint64_t rdx)
{
    return rdx == sp + FRAME_UCONTEXT && rsi == sp + FRAME_SIGINFO && rdi && rdi < SIGNALS;
}

static uint64_t word(uint64_t frame, unsigned offset) { return *(const uint64_t *)guest_memory(frame + offset); }

static bool raised_by_instruction(int number, uint64_t frame)
{
    if (number != SIGILL && number != SIGTRAP && number != SIGBUS && number != SIGFPE && number != SIGSEGV)
        return false;
    /* Without SA_SIGINFO QEMU writes no siginfo. */
    if (!(actions[number].flags & GUEST_SA_SIGINFO))
        return true;
    return *(const int32_t *)guest_memory(frame + FRAME_SIGINFO + SIGINFO_CODE) > 0;
}

static struct interruption interruption(uint64_t frame, int number)
{
    return (struct interruption){word(frame, FRAME_RIP), frame, number, raised_by_instruction(number, frame)};
}

bool signals_entered(const struct block *block, const uint64_t *registers, bool sure, struct interruption *out)
{
    uint64_t sp = registers[RSP];
    if (!frame_at(sp, registers[RDI], registers[RSI], registers[RDX]))
        return false;
    if (sure && actions[registers[RDI]].handler != block->start)
        return false;
    *out = interruption(sp, (int)registers[RDI]);
    return true;
}

bool signals_below(struct interruption *out)
{
    uint64_t sp = word(out->frame, FRAME_RSP), number = word(out->frame, FRAME_RDI);
    if (!frame_at(sp, number, word(out->frame, FRAME_RSI), word(out->frame, FRAME_RDX)))
        return false;
    if (actions[number].handler != out->ip)
        return false;
    *out = interruption(sp, (int)number);
    return true;
}
