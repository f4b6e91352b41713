/*
 * The process becomes another program. By itself that program runs without QEMU, and nobody can record it; with
 * `follow=on` the recorder executes QEMU again, with itself, and the program in it. Either way a session ends here, as
 * the recorded program does; the next one, if it is followed, leaves the data until the controller has read them.
 */
#include "recorder.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_ARGUMENTS 65536
#define SCRIPT_LINE 256 /* the kernel's BINPRM_BUF_SIZE */
#define COMM_SIZE 16    /* the kernel's TASK_COMM_LEN */
#define OPTIONS_SIZE (sizeof ",dir=,follow=on,name=" + 2 * COMM_SIZE)

static bool following;
static char recorder_folder[256];
static char plugin_path[4096];
static __thread bool left;

void exec_configure(bool follow, const char *folder)
{
    Dl_info here;
    following = follow && dladdr((void *)exec_configure, &here) && realpath(here.dli_fname, plugin_path);
    snprintf(recorder_folder, sizeof recorder_folder, "%s", folder);
}

/*
 * The folder is its owner's alone. Whoever else the process has become by now loses root's capabilities with the next program,
 * which could not begin to record and would end.
 */
static bool may_record(void)
{
    struct stat about;
    return !geteuid() || (!stat(recorder_folder, &about) && about.st_uid == geteuid());
}

/* The guest's pointers may point nowhere: that is the system call's to say. */
static bool read_guest(uint64_t address, void *to, size_t size)
{
    struct iovec local = {to, size}, remote = {guest_memory(address), size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool read_text(uint64_t address, char *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!read_guest(address + i, to + i, 1))
            return false;
        else if (!to[i])
            return true;
    return false;
}

/* The guest's words are 64 bit wide, as ours: what it passes can be passed on, plus what tells the addresses apart. */
static char **read_vector(uint64_t address, size_t *count)
{
    char **vector = NULL;
    for (*count = 0; address && *count < MOST_ARGUMENTS; ++*count) {
        uint64_t word;
        char **more = realloc(vector, (*count + 1) * sizeof *vector);
        if (!more || !read_guest(address + *count * 8, &word, sizeof word)) {
            free(more ? more : vector);
            return NULL;
        }
        vector = more;
        vector[*count] = word ? guest_memory(word) : NULL;
        if (!word)
            return vector;
    }
    free(vector);
    return NULL;
}

/* As execve asks: by the effective user and its capabilities. */
static bool may_execute(const char *path) { return !faccessat(AT_FDCWD, path, X_OK, AT_EACCESS); }

enum format { OTHER, PROGRAM, SCRIPT };

/* What the file is; for a script its first line without `#!`. */
static enum format format_of(const char *path, char line[SCRIPT_LINE])
{
    Elf64_Ehdr header;
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return OTHER;
    bool plain = !fstat(file, &about) && S_ISREG(about.st_mode) && !(about.st_mode & (S_ISUID | S_ISGID));
    ssize_t got = pread(file, &header, sizeof header, 0);
    ssize_t text = pread(file, line, SCRIPT_LINE - 1, 0);
    close(file);
    if (!plain || !may_execute(path))
        return OTHER;
    if (got == sizeof header && !memcmp(header.e_ident, ELFMAG, SELFMAG))
        return header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == EM_X86_64 ? PROGRAM : OTHER;
    if (text < 2 || line[0] != '#' || line[1] != '!')
        return OTHER;
    line[text] = 0;
    memmove(line, line + 2, (size_t)text - 1);
    line[strcspn(line, "\n")] = 0;
    return SCRIPT;
}

/* What the kernel would name the process (`comm`), as an option of the plugin: there a comma is written twice. */
static void put_name(char *to, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    to = stpcpy(to, ",name=");
    for (size_t i = 0; i < COMM_SIZE - 1 && name[i]; i++) {
        if (name[i] == ',')
            *to++ = ',';
        *to++ = name[i];
    }
    *to = 0;
}

static void execute(const char *path, char *const *arguments, size_t count, char *const *environment, const char *line)
{
    char emulator[4096], plugin[sizeof plugin_path + sizeof recorder_folder + OPTIONS_SIZE], script[SCRIPT_LINE];
    const char **all = calloc(count + 10, sizeof *all);
    size_t n = 0;
    ssize_t size = readlink("/proc/self/exe", emulator, sizeof emulator - 1);
    if (!all || size < 0)
        return;
    emulator[size] = 0;
    put_name(plugin + sprintf(plugin, "%s,dir=%s,follow=on", plugin_path, recorder_folder), path);
    snprintf(script, sizeof script, "%s", line ? line : "");
    char *interpreter = script + strspn(script, " \t");
    char *argument = interpreter + strcspn(interpreter, " \t");
    if (*argument)
        *argument++ = 0, argument += strspn(argument, " \t");
    all[n++] = emulator;
    all[n++] = "-plugin";
    all[n++] = plugin;
    all[n++] = "-0";
    all[n++] = line ? interpreter : count ? arguments[0] : path;
    if (line)
        all[n++] = interpreter;
    if (line && *argument)
        all[n++] = argument;
    all[n++] = path;
    for (size_t i = 1; i < count; i++)
        all[n++] = arguments[i];
    execve(emulator, (char *const *)all, environment);
    free(all);
}

static void follow(const char *path, const char *line, uint64_t arguments, uint64_t environment)
{
    static char *const nothing[] = {NULL};
    size_t argument_count, variable_count;
    char **passed = read_vector(arguments, &argument_count), **variables = read_vector(environment, &variable_count);
    if (passed)
        execute(path, passed, argument_count, variables ? variables : nothing, line);
    free(passed);
    free(variables);
}

void exec_begins(int64_t number, uint64_t path_address, uint64_t arguments, uint64_t environment)
{
    char path[4096], line[SCRIPT_LINE], interpreter[SCRIPT_LINE] = "", other[SCRIPT_LINE];
    if (number != SYS_execve || !read_text(path_address, path, sizeof path))
        return;
    /* Programs look through $PATH by trying. */
    if (!may_execute(path))
        return;
    enum format format = format_of(path, line);
    if (format == SCRIPT) {
        snprintf(interpreter, sizeof interpreter, "%s", line + strspn(line, " \t"));
        interpreter[strcspn(interpreter, " \t")] = 0;
    }
    control_before_exec();
    left = true;
    if (following && may_record() && (format == PROGRAM || (format == SCRIPT && format_of(interpreter, other) == PROGRAM)))
        follow(path, format == SCRIPT ? line : NULL, arguments, environment);
    control_not_followed();
}

void exec_failed(void)
{
    if (left)
        control_after_failed_exec();
    left = false;
}
