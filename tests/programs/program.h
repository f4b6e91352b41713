/* Each part does one kind of thing that a flow recorder must follow, once; main repeats it in a thread of its own. */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifdef __cplusplus
extern "C" {
#endif

void throw_and_catch(void);
void jump_out(void);
void catch_faults(void);
void meet_signals(void);
void use_library(void);
void generate_code(void);
void repeat_strings(void);
void make_processes(void);

/* A little arithmetic with branches that no compiler foresees. */
unsigned compute(unsigned seed, unsigned rounds);

#ifdef __cplusplus
}
#endif
#endif
