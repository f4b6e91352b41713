/* The control page, and the recorder's own thread: it begins a session, ends it on time and never asks the controller. */
#include "clock.h"
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 500000
#define IDLE_POLL_NS 10000000 /* for a controller that changes the state without waking us */
#define PUSH_AFTER_POLLS 2
#define CHILD_STREAMS 4 /* of a forked child that joins its parent's session */
#define BUS_HZ 100000000ull
#define TRANSLATING_LOOK_NS 5000000
#define TRANSLATED_NS 20000 /* a block, with the record of its code */
#define MOST_TRANSLATING_NS 200000000

struct recorder recorder;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the state's changes */
static char parent_folder[200];
static uint32_t sessions;
static unsigned polls; /* since the session began without instrumentation */
static struct {
    uint64_t ends_ns; /* CLOCK_MONOTONIC */
    uint64_t most_ns; /* that it may still be put off */
    uint64_t looked_ns;
    uint32_t translated;
    bool joined; /* the next one is the rest of the parent's */
} period;

static struct vpt_anchor anchor(void)
{
    return (struct vpt_anchor){__rdtsc(), now_ns(CLOCK_REALTIME), now_ns(CLOCK_MONOTONIC)};
}

static uint64_t measure_tsc_hz(void)
{
    struct vpt_anchor a = anchor();
    pause_ns(5000000);
    struct vpt_anchor b = anchor();
    return (b.tsc - a.tsc) * 1000000000 / (b.monotonic_ns - a.monotonic_ns);
}

static uint64_t process_start(void)
{
    char text[1024] = "";
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    char *at = got > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static void path_of(char path[320], const char *name) { snprintf(path, 320, "%s/%s", recorder.folder, name); }

static struct vpt_control *map_page(int file)
{
    void *page = mmap(NULL, sizeof(struct vpt_control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return page == MAP_FAILED ? NULL : page;
}

/* What this process left when it was another program, with a session that nobody has read yet. */
static struct vpt_control *left_behind(void)
{
    char path[320];
    struct stat about;
    struct vpt_control *page = NULL;
    path_of(path, "control");
    int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file >= 0 && !fstat(file, &about) && about.st_size >= (off_t)sizeof *page)
        page = map_page(file);
    if (file >= 0)
        close(file);
    if (page && page->magic == VPT_MAGIC && page->version == VPT_VERSION && page->process_start == process_start() &&
        page->state == VPT_FINISHED)
        return page;
    if (page)
        munmap(page, sizeof *page);
    return NULL;
}

/* A new file: a controller may have the old one mapped. */
static struct vpt_control *new_page(void)
{
    char path[320];
    path_of(path, "control");
    unlink(path);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    struct vpt_control *page = posix_fallocate(file, 0, sizeof *page) ? NULL : map_page(file);
    close(file);
    return page;
}

static void fill(struct vpt_control *c, uint32_t parent)
{
    c->version = VPT_VERSION;
    c->pid = (uint32_t)getpid();
    c->process_start = process_start();
    c->parent_pid = parent;
    c->family = 6, c->model = 94, c->stepping = 3;
    c->nominal_ratio = (uint32_t)((recorder.tsc_hz + BUS_HZ / 2) / BUS_HZ);
    c->tsc_ctc_num = c->nominal_ratio * 4, c->tsc_ctc_den = 1; /* a crystal of about 25 MHz */
    atomic_thread_fence(memory_order_release);
    c->magic = VPT_MAGIC;
}

bool control_open(const char *folder, uint32_t parent)
{
    if (folder != parent_folder)
        snprintf(parent_folder, sizeof parent_folder, "%s", folder);
    snprintf(recorder.folder, sizeof recorder.folder, "%s/%d", parent_folder, getpid());
    mkdir(folder, 0700);
    if (mkdir(recorder.folder, 0700) && errno != EEXIST)
        return false;
    if (!recorder.tsc_hz)
        recorder.tsc_hz = measure_tsc_hz();
    struct vpt_control *page = left_behind();
    if (page)
        streams_adopt(page->streams);
    else if ((page = new_page()))
        fill(page, parent);
    if (page)
        recorder.control = page;
    return page;
}

static void remove_folder(void)
{
    static const char *const names[] = {"control", "sideband.bin", "truth-blocks.bin"};
    streams_remove();
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[320];
        path_of(path, names[i]);
        unlink(path);
    }
    rmdir(recorder.folder);
}

static void configure(void)
{
    const struct vpt_control *c = recorder.control;
    uint32_t psb = c->psb_freq > 15 ? 15 : c->psb_freq;
    recorder.config = (struct pt_config){
        .tsc = c->flags & VPT_TSC, .mtc = c->flags & VPT_MTC, .cyc = c->flags & VPT_CYC,
        .long_tnt = c->flags & VPT_LONG_TNT, .psb_bytes = 2048u << psb, .mtc_shift = c->mtc_freq,
        .ctc_num = c->tsc_ctc_num, .ctc_den = c->tsc_ctc_den, .bus_ratio = (uint8_t)c->nominal_ratio,
    };
    recorder.window_bytes = c->bandwidth_bytes_per_ms;
    recorder.window_ticks = recorder.tsc_hz / 1000;
}

static bool prepare(char *error, size_t size)
{
    const char *unsound = switching_unsound();
    if (unsound || streams_revoked()) {
        snprintf(error, size, "%s", unsound ? unsound : "a thread of the program is stopped inside the recorder");
        return false;
    }
    streams_remove();
    if (!sideband_open(error, size))
        return false;
    if (!image_reset() || ((recorder.control->flags & VPT_TRUTH) && !truth_create())) {
        snprintf(error, size, "a thread of the program is stopped inside the recorder");
        return false;
    }
    return streams_create(error, size);
}

static void begin(void)
{
    struct vpt_control *c = recorder.control;
    c->streams = c->unbuffered_threads = c->unexplained = c->revoked_threads = 0;
    c->sideband_bytes = c->unbuffered_blocks = 0;
    c->stop_reason = VPT_STOP_NONE;
    memset(c->error, 0, sizeof c->error);
    configure();
    if (!prepare(c->error, sizeof c->error)) {
        sideband_close();
        __atomic_store_n(&c->state, VPT_REFUSED, __ATOMIC_SEQ_CST);
        return;
    }
    c->begin = c->end = anchor();
    period.ends_ns = c->begin.monotonic_ns + c->period_ns;
    period.most_ns = period.joined ? 0 : MOST_TRANSLATING_NS;
    period.looked_ns = c->begin.monotonic_ns;
    period.translated = blocks_translated();
    period.joined = false;
    polls = 0;
    if (++sessions == UINT32_MAX)
        sessions = 1;
    atomic_store(&recorder.session, sessions);
    __atomic_store_n(&c->state, VPT_ACTIVE, __ATOMIC_SEQ_CST);
}

static void finish(uint32_t reason)
{
    struct vpt_control *c = recorder.control;
    uint32_t session = recorder.session;
    c->stop_reason = reason;
    atomic_store(&recorder.session, 0);
    settle_threads(session);
    c->end = anchor();
    sideband_close();
    __atomic_store_n(&c->state, VPT_FINISHED, __ATOMIC_SEQ_CST);
}

/*
 * For a session QEMU translates the program anew, block by block as it comes by them, and the program hardly runs
 * meanwhile: what that takes is recorded, and the period is the longer by it.
 */
static void put_off_end(uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - period.looked_ns;
    if (passed_ns < TRANSLATING_LOOK_NS)
        return;
    uint32_t translated = blocks_translated();
    uint64_t translating_ns = (uint64_t)(translated - period.translated) * TRANSLATED_NS;
    if (translating_ns > passed_ns / 4 && passed_ns <= period.most_ns) {
        period.ends_ns += passed_ns;
        period.most_ns -= passed_ns;
    }
    period.looked_ns = now_ns;
    period.translated = translated;
}

/* A controller that finds the process dead finds the clock as it was at most this long before. */
static void go_on(void)
{
    struct vpt_control *c = recorder.control;
    c->end = anchor();
    put_off_end(c->end.monotonic_ns);
    if (c->stop_request)
        finish(VPT_STOP_REQUEST);
    else if (c->end.monotonic_ns >= period.ends_ns)
        finish(VPT_STOP_PERIOD);
}

static void look(void)
{
    struct vpt_control *c = recorder.control;
    uint32_t state = __atomic_load_n(&c->state, __ATOMIC_SEQ_CST);
    if (state == VPT_IDLE && !streams_revoked())
        streams_remove();
    if (state == VPT_ARMED && switching_known())
        begin();
    else if (state == VPT_ACTIVE)
        go_on();
}

/* Dormant it sleeps until a controller wakes it: the program shares its processor with nobody. */
static void rest(void)
{
    uint32_t *word = &recorder.control->state, state = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (state == VPT_ARMED || state == VPT_ACTIVE)
        pause_ns(POLL_NS);
    else
        syscall(SYS_futex, word, FUTEX_WAIT, state, &(struct timespec){0, IDLE_POLL_NS}, NULL, 0);
}

static void *watch(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        look();
        pthread_mutex_unlock(&lock);
        /* Without our lock: QEMU forks, which needs that, holding the lock that this needs. */
        if (recorder.session && recorder.instrumented != recorder.session && ++polls == PUSH_AFTER_POLLS)
            switching_push();
        rest();
    }
    return unused;
}

void control_start_thread(void)
{
    sigset_t all, old;
    pthread_t thread;
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!pthread_create(&thread, NULL, watch, NULL))
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void control_before_fork(void)
{
    pthread_mutex_lock(&lock);
    image_lock();
    streams_lock();
    sideband_lock();
}

static void unlock(void)
{
    sideband_unlock();
    streams_unlock();
    image_unlock();
    pthread_mutex_unlock(&lock);
}

void control_after_fork_in_parent(void) { unlock(); }

/* The rest of the session that the parent is in, in the child's own page. */
static void join(struct vpt_control *own, const struct vpt_control *parents, uint64_t now)
{
    uint64_t largest = 0;
    if (parents->state != VPT_ACTIVE || !(parents->flags & VPT_FOLLOW) || now >= period.ends_ns)
        return;
    memcpy(own->session, parents->session, sizeof own->session);
    own->period_ns = period.ends_ns - now;
    period.joined = true;
    own->flags = parents->flags;
    own->psb_freq = parents->psb_freq, own->mtc_freq = parents->mtc_freq;
    own->bandwidth_bytes_per_ms = parents->bandwidth_bytes_per_ms;
    for (uint32_t i = 0; i < parents->planned_count && i < VPT_MAX_STREAMS; i++)
        if (parents->planned[i].size_bytes > largest)
            largest = parents->planned[i].size_bytes;
    own->planned_count = CHILD_STREAMS;
    for (uint32_t i = 0; i < CHILD_STREAMS; i++)
        own->planned[i] = (struct vpt_planned){.size_bytes = largest};
    __atomic_store_n(&own->state, VPT_ARMED, __ATOMIC_SEQ_CST);
}

/*
 * The child is a recordable process of its own, dormant unless it follows. Its blocks are still instrumented if the
 * parent's were; no thread of ours lives in it yet.
 */
void control_after_fork_in_child(void)
{
    struct vpt_control *parents = recorder.control;
    atomic_store(&recorder.session, 0);
    unlock();
    truth_forget();
    sideband_close();
    streams_forget();
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        if (recorder.threads[i])
            recorder.threads[i]->busy = recorder.threads[i]->recording = false;
    if (control_open(parent_folder, parents->pid)) {
        join(recorder.control, parents, now_ns(CLOCK_MONOTONIC));
        munmap(parents, sizeof *parents);
        control_start_thread();
    }
}

/* Data that nobody has read stay. */
static void leave(void)
{
    if (recorder.control->state == VPT_ACTIVE)
        finish(VPT_STOP_NONE);
    else if (recorder.control->state != VPT_FINISHED)
        remove_folder();
}

/* The program's end, or that of a child that has no page of its own. */
void control_exit(void)
{
    struct vpt_control *c = recorder.control;
    pthread_mutex_lock(&lock); /* for ever: the recorder's thread does nothing more */
    if (c->pid != (uint32_t)getpid())
        return;
    leave();
}

/* If it succeeds nothing of us is left. */
void control_before_exec(void)
{
    pthread_mutex_lock(&lock);
    if (recorder.control->pid != (uint32_t)getpid())
        return;
    leave();
}

/* The controller takes the data of a session as those of a process that has ended. */
void control_not_followed(void)
{
    if (recorder.control->pid == (uint32_t)getpid())
        recorder.control->process_start = 0;
}

/* The page of before stays mapped: other threads may be looking at it. */
void control_after_failed_exec(void)
{
    struct vpt_control *c = recorder.control;
    if (c->pid == (uint32_t)getpid()) {
        c->process_start = process_start();
        if (c->state != VPT_FINISHED)
            control_open(parent_folder, c->parent_pid);
    }
    pthread_mutex_unlock(&lock);
}
