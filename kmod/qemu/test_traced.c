// SPDX-License-Identifier: GPL-2.0
/*
 * Under QEMU with a trace unit: records a program that runs on both CPUs, and hands over what was
 * recorded. Whether that is what ran is decided by the host, which has the unit's own log.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive.h"
#include "load.h"
#include "recording.h"
#include "tap.h"
#include "tests.h"
#include "unit/mark.h"

#define MOST_THREADS 256

static void archive_text(const char *name, const char *text)
{
	archive_add(text, strlen(text), "%s", name);
}

/* Whether its buffer is full */
static bool archive_core(struct recording *r, unsigned int index, char *text, size_t size)
{
	struct permille_core_status core = core_status(r, index);
	struct permille_switch *records;

	check(core.end == (getenv("period_ms") ? PERMILLE_END_PERIOD : PERMILLE_END_STOPPED),
	      "core %u ended by %u", core.cpu, core.end);
	check(!core.faults && !core.tracing && !core.records_dropped,
	      "core %u: %u faults, %llu records dropped", core.cpu, core.faults,
	      core.records_dropped);
	archive_add(r->trace[index], core.trace_bytes, "core-%u.pt", index);
	records = archive_room(core.records * sizeof(*records), "core-%u.switches", index);
	for (uint64_t i = 0; records && i < core.records; i++)
		records[i] = *switch_at(r, index, i);
	snprintf(text + strlen(text), size - strlen(text),
		 "core %u bytes %llu on %llu off %llu retargets %llu full %u\n", core.cpu,
		 core.trace_bytes, core.operations_on, core.operations_off, core.retargets,
		 core.full);
	note("core %u: %llu bytes, %llu arrivals, %llu control operations, full %u", core.cpu,
	     core.trace_bytes, core.arrivals, core.operations_on + core.operations_off, core.full);
	return core.full;
}

/* The thread's pointer to itself, by which the unit's log knows it */
static unsigned long thread_pointer(pid_t tid)
{
	struct user_regs_struct registers = {};
	int status;

	check(!ptrace(PTRACE_SEIZE, tid, NULL, NULL) && !ptrace(PTRACE_INTERRUPT, tid, NULL, NULL),
	      "thread %d: %s", tid, strerror(errno));
	waitpid(tid, &status, __WALL);
	check(!ptrace(PTRACE_GETREGS, tid, NULL, &registers), "thread %d: %s", tid,
	      strerror(errno));
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
	return registers.fs_base;
}

static void archive_threads(const struct recording *r)
{
	static char text[CORES * MOST_THREADS * 64];
	pid_t tids[MOST_THREADS];

	for (unsigned int i = 0; i < r->setup.process_count; i++) {
		unsigned int count = threads_of(r->pids[i], tids, MOST_THREADS);

		for (unsigned int t = 0; t < count; t++)
			sprintf(text + strlen(text), "%d %lx\n", tids[t], thread_pointer(tids[t]));
	}
	archive_text("threads.txt", text);
}

/* Everything executable, as it stands in the program's memory */
static void archive_code(pid_t pid)
{
	char path[64], line[512], protection[8];
	unsigned long from, to;
	FILE *maps;
	int memory;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		char *room;

		if (sscanf(line, "%lx-%lx %7s", &from, &to, protection) != 3 ||
		    protection[2] != 'x' || from >> 47)
			continue;
		room = archive_room(to - from, "code-%d-%lx", pid, from);
		check(room && pread(memory, room, to - from, from) == (ssize_t)(to - from),
		      "no code at %lx", from);
	}
	if (maps)
		fclose(maps);
	close(memory);
}

/* Reads the kernel's memory by its addresses: /proc/kcore is an ELF file of it. */
static bool read_kernel(int kcore, unsigned long address, void *to, size_t size)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;

	if (pread(kcore, &head, sizeof(head), 0) != sizeof(head))
		return false;
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		if (pread(kcore, &part, sizeof(part), head.e_phoff + i * sizeof(part)) !=
		    sizeof(part))
			return false;
		if (part.p_type == PT_LOAD && address >= part.p_vaddr &&
		    address + size <= part.p_vaddr + part.p_memsz)
			return pread(kcore, to, size,
				     part.p_offset + address - part.p_vaddr) == (ssize_t)size;
	}
	return false;
}

static void archive_kernel_part(int kcore, unsigned long from, unsigned long size)
{
	void *room = archive_room(size, "code-0-%lx", from);

	check(room && read_kernel(kcore, from, room, size), "no kernel code at %lx", from);
}

/* The kernel's own code and that of its modules, as the process 0 */
static void archive_kernel(void)
{
	unsigned long address, from = 0, to = 0, size;
	int kcore = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[512], name[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx %*c %255s", &address, name) != 2)
			continue;
		from = strcmp(name, "_stext") ? from : address;
		to = strcmp(name, "_etext") ? to : address;
	}
	fclose(file);
	archive_kernel_part(kcore, from, to - from);
	file = fopen("/proc/modules", "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*s %lu %*s %*s %*s %lx", &size, &address) == 2)
			archive_kernel_part(kcore, address, size);
	fclose(file);
	close(kcore);
}

static pid_t start_program(char *const arguments[])
{
	pid_t pid = fork();

	if (!pid) {
		int nothing = open("/dev/null", O_RDWR);

		dup2(nothing, 0);
		dup2(nothing, 1);
		dup2(nothing, 2);
		execv(arguments[0], arguments);
		_exit(127);
	}
	return pid;
}

static void wait_socket(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, failed;

	strcpy(address.sun_path, path);
	do {
		usleep(10000);
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		failed = connect(fd, (void *)&address, sizeof(address));
		close(fd);
	} while (failed);
}

/* Several threads that serve, and clients in a process of their own */
static pid_t start_redis(const char *socket, pid_t *client)
{
	char *const server[] = { "/usr/bin/redis-server", "--port", "0", "--unixsocket",
				 (char *)socket, "--save", "", "--io-threads", "3",
				 "--io-threads-do-reads", "yes", NULL };
	char *const clients[] = { "/usr/bin/redis-benchmark", "-s", (char *)socket, "-q", "-l",
				  "-c", "24", "-P", "4", "-t", "set,get,lpush,zadd", NULL };
	pid_t pid = start_program(server);

	wait_socket(socket);
	*client = start_program(clients);
	return pid;
}

static void hand_over(struct recording *r)
{
	bool full = false, expected = getenv("buffer_kb");
	char text[512] = "";

	for (unsigned int i = 0; i < CORES; i++)
		full |= archive_core(r, i, text, sizeof(text));
	check(full || !expected, "a buffer of %llu bytes is not full", r->plans[0].buffer_bytes);
	archive_text("session.txt", text);
	archive_threads(r);
	for (unsigned int i = 0; i < r->setup.process_count; i++)
		archive_code(r->pids[i]);
	if (r->setup.flags & PERMILLE_KERNEL)
		archive_kernel();
}

/*
 * Each process came often, or what must be full is: what a program does in a time is the machine's
 * affair.
 */
static bool is_enough(const struct recording *r)
{
	unsigned int arrivals[CORES] = {}, least = parameter("arrivals", 100);

	if (getenv("buffer_kb"))
		return core_status(r, parameter("cpu", 0)).full;
	for (unsigned int i = 0; i < CORES; i++)
		for (uint64_t at = 0; at < r->rings[i]->head; at++)
			arrivals[r->setup.process_count > 1 &&
				 switch_at(r, i, at)->pid == r->pids[1]]++;
	return arrivals[0] >= 2 * least &&
	       (r->setup.process_count == 1 || arrivals[1] >= 2 * least);
}

static bool is_nothing(const struct recording *r)
{
	return !core_status(r, 0).operations_on && !core_status(r, 1).operations_on;
}

static void trace_once(struct recording *r)
{
	record(r);
	if (getenv("period_ms")) {
		wait_end(r);
		return;
	}
	while (!is_enough(r))
		usleep(5000);
	stop(r);
}

static void trace(struct recording *r, pid_t pid, pid_t other)
{
	propose(r, pid, 0, CORES);
	r->setup.process_count = other ? 2 : 1;
	r->pids[1] = other;
	r->setup.flags |= PERMILLE_MTC | PERMILLE_CYC;
	r->setup.flags |= parameter("ring0", 0) ? PERMILLE_KERNEL : 0;
	r->setup.mtc_freq = 3;
	r->setup.period_ns = parameter("period_ms", PERMILLE_MAX_PERIOD_NS / 1000000) * 1000000;
	for (unsigned int i = 0; i < CORES; i++) {
		r->plans[i].buffer_bytes = parameter("buffer_kb", 16384) << 10;
		r->plans[i].switch_records = 1 << 19;
	}
	for (trace_once(r); is_nothing(r); trace_once(r)) {
		close_recording(r);
		r->setup.period_ns *= 2;
	}
}

static void traced_redis(bool two)
{
	static const char *const sockets[CORES] = { "/redis", "/redis2" };
	pid_t servers[CORES] = {}, clients[CORES] = {};
	struct recording r;

	for (int i = 0; i <= two; i++)
		servers[i] = start_redis(sockets[i], &clients[i]);
	trace(&r, servers[0], servers[1]);
	for (int i = 0; i <= two; i++)
		kill(clients[i], SIGKILL);
	hand_over(&r);
	close_recording(&r);
	for (int i = 0; i <= two; i++) {
		kill(servers[i], SIGKILL);
		waitpid(servers[i], NULL, 0);
		waitpid(clients[i], NULL, 0);
	}
	result(two ? "two redis-servers with several threads were recorded" :
	       "redis-server with several threads was recorded");
}

static void traced_ring(void)
{
	struct load load = load_endless(parameter("load", 8), parameter("cpu", -1));
	struct recording r;

	trace(&r, load.pid, 0);
	hand_over(&r);
	conclude(&r, &load, "a ring of threads was recorded");
}

/* Where its binary is in the guest: `run` */
static void traced_32_bits(void)
{
	char *const program[] = { "/bits32", NULL };
	struct recording r;
	pid_t pid = start_program(program);

	trace(&r, pid, 0);
	hand_over(&r);
	close_recording(&r);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	result("a program of 32 bits was recorded");
}

/* What `load` and the other words of a recording say, each by its name in the environment */
static void put_options(char *words)
{
	char *rest, *value;

	for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		value = strchr(word, '=');
		if (!check(value, "%s is no NAME=VALUE", word))
			continue;
		*value = 0;
		setenv(word, value + 1, 1);
	}
}

static void take_options_back(void)
{
	static const char *const names[] = { "load", "cpu", "buffer_kb", "ring0", "arrivals",
					     "period_ms" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

static void trace_load(const char *load)
{
	if (atoi(load))
		traced_ring();
	else if (!strcmp(load, "bits32"))
		traced_32_bits();
	else
		traced_redis(!strcmp(load, "two"));
}

/*
 * `recording-0=`, `recording-1=` and so on, each with its words between commas: load=redis,
 * load=two (of them in one session), load=bits32 (a program of 32 bits), or so many threads of a
 * ring, wherever they like or on one cpu=; with a buffer_kb= that must not suffice. With ring0=1
 * the kernel's code too. Until each process came arrivals= times, or period_ms=.
 */
void test_traced(void)
{
	char name[32];

	check(module_info().backend == PERMILLE_BACKEND_EMULATED, "back end %u",
	      module_info().backend);
	if (!archive_open())
		return;
	for (unsigned int number = 0;
	     snprintf(name, sizeof(name), "recording-%u", number), getenv(name); number++) {
		archive_folder(number);
		put_options(getenv(name));
		mark(MARK_RECORDING_COMES);
		if (check(getenv("load"), "recording %u has no load", number))
			trace_load(getenv("load"));
		take_options_back();
		mark(MARK_NEXT_RECORDING);
	}
	archive_close();
}
