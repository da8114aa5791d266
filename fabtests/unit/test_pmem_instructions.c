// SPDX-License-Identifier: BSD-2-Clause
/* The CPU instructions that a flush or a store executes, found by ptrace(2). */
#include <libpmem2.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "pmem_rig.h"

#ifdef __x86_64__
/*
 * The write-back instructions of a child process, found by single-stepping it:
 * this observes the CPU instead of the code under test.
 */
struct executed {
	uintptr_t line[32];
	size_t lines;	   /* number of write-backs */
	size_t fences;	   /* sfences behind the last write-back */
	bool uses_clflush; /* clflush, which needs no fence */
};

static uintptr_t reg_of(const struct user_regs_struct *r, int n)
{
	const unsigned long long v[8] = {r->rax, r->rcx, r->rdx, r->rbx,
					 r->rsp, r->rbp, r->rsi, r->rdi};

	return v[n];
}

static void decode_instructions(pid_t pid, struct executed *x)
{
	struct user_regs_struct regs;
	unsigned char op[8];
	uintptr_t at;
	long word;
	int i;

	cr_assert_eq(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
	word = ptrace(PTRACE_PEEKTEXT, pid, regs.rip, NULL);
	memcpy(op, &word, sizeof(op));
	i = op[0] == 0x66;
	if (op[i] != 0x0f || op[i + 1] != 0xae)
		return;
	if (op[i + 2] == 0xf8) {
		x->fences++;
		return;
	}
	/* clwb 66 /6, clflushopt 66 /7, clflush /7; [register (+ byte)]. */
	if (op[i + 2] >> 6 == 3 || (op[i + 2] >> 3 & 7) < 6 ||
	    (!i && (op[i + 2] >> 3 & 7) == 6))
		return;
	cr_assert_lt(op[i + 2] >> 6, 2);
	cr_assert_neq(op[i + 2] & 7, 4);
	cr_assert((op[i + 2] & 7) != 5 || op[i + 2] >> 6);
	cr_assert_lt(x->lines, 32);
	at = reg_of(&regs, op[i + 2] & 7);
	if (op[i + 2] >> 6)
		at += (uintptr_t)(signed char)op[i + 3];
	x->line[x->lines++] = at & ~63ull;
	x->uses_clflush = !i;
	x->fences = 0;
}

static struct executed run_traced(struct rp_pmem *pm, uint64_t off,
				  uint64_t len)
{
	struct executed x = {0};
	pid_t pid = fork();
	int st;

	cr_assert_geq(pid, 0);
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		rp_pmem_flush(pm, off, len);
		rp_pmem_drain(pm);
		raise(SIGSTOP);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &st, 0), pid);
	if (!WIFSTOPPED(st) || WSTOPSIG(st) != SIGSTOP)
		cr_skip("ptrace is not allowed here");
	do {
		decode_instructions(pid, &x);
		cr_assert_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		cr_assert_eq(waitpid(pid, &st, 0), pid);
		cr_assert(WIFSTOPPED(st));
	} while (WSTOPSIG(st) == SIGTRAP);
	cr_assert_eq(WSTOPSIG(st), SIGSTOP);
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	return x;
}

static void check_lines(struct rp_pmem *pm, const char *base, size_t off,
			size_t len)
{
	uintptr_t s, e;
	struct executed x;

	units_around((uintptr_t)base + off, (uintptr_t)base + off + len - 1, 64,
		     &s, &e);
	x = run_traced(pm, off, len);
	cr_assert_eq(x.lines, (e - s) / 64, "%zu lines, not %zu", x.lines,
		     (e - s) / 64);
	for (size_t i = 0; i < x.lines; i++)
		cr_assert_eq(x.line[i], s + 64 * i);
	cr_assert(x.fences || x.uses_clflush, "no fence behind the flush");
}

static void skip_in_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload && strstr(preload, "vgpreload"))
		cr_skip("valgrind runs translated code");
}

Test(pmem, instructions)
{
	char *p = aligned_alloc(4096, 8192);
	struct rp_pmem *pm =
		make_pmem((uintptr_t)p + 3, 4096, RP_METHOD_AGENT_CLWB, NULL);
	struct rp_pmem *same =
		make_pmem((uintptr_t)p + 3, 4096, RP_METHOD_AGENT_CLWB, NULL);
	struct rp_pmem *over =
		make_pmem((uintptr_t)p + 70, 64, RP_METHOD_AGENT_CLWB, NULL);

	skip_in_valgrind();
	memset(p, 1, 8192);
	check_lines(pm, p + 3, 0, 1);
	check_lines(pm, p + 3, 60, 2);
	check_lines(pm, p + 3, 61, 129);
	check_lines(same, p + 3, 4000, 96);
	check_lines(over, p + 70, 0, 64);
	/* The other regions flush as before after one of them is deleted. */
	rp_pmem_delete(same);
	check_lines(pm, p + 3, 0, 64);
	rp_pmem_delete(over);
	rp_pmem_delete(pm);
	free(p);
}

Test(pmem, instructions_of_sfence)
{
	char *p = aligned_alloc(4096, 4096);
	struct rp_pmem *pm;
	struct executed x;

	skip_in_valgrind();
	pm = make_pmem((uintptr_t)p, 4096, RP_METHOD_AGENT_SFENCE, NULL);
	x = run_traced(pm, 1, 200);
	cr_assert_eq(x.lines, 0);
	cr_assert_geq(x.fences, 1);
	rp_pmem_delete(pm);
	free(p);
}

/* After each instruction, each aligned word has its old or its new value. */
Test(pmem, store_never_leaves_a_mixed_word)
{
	enum {
		WORDS = 26
	};
	static uint64_t mem[512] __attribute__((aligned(4096)));
	struct rp_pmem *pm = make_pmem((uintptr_t)mem, sizeof(mem),
				       RP_METHOD_AGENT_CLWB, NULL);
	const uint64_t old = 0, new = 0x0807060504030201;
	uint8_t bytes[256];
	size_t stages = 0;
	pid_t pid;
	int st;

	skip_in_valgrind();
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i % 8 + 1);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		/* Whole words of two lines, and part of a word at both ends. */
		store_bytes(pm, 5, bytes + 5, WORDS * 8 + 6);
		raise(SIGSTOP);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &st, 0), pid);
	if (!WIFSTOPPED(st) || WSTOPSIG(st) != SIGSTOP)
		cr_skip("ptrace is not allowed here");
	do {
		size_t n = 0;

		for (size_t i = 1; i <= WORDS; i++) {
			uint64_t v = (uint64_t)ptrace(PTRACE_PEEKDATA, pid,
						      &mem[i], NULL);

			cr_assert(v == old || v == new, "word %zu is %#llx", i,
				  (unsigned long long)v);
			n += v == new;
		}
		if (stages < n)
			stages++;
		cr_assert_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		cr_assert_eq(waitpid(pid, &st, 0), pid);
		cr_assert(WIFSTOPPED(st));
	} while (WSTOPSIG(st) == SIGTRAP);
	cr_assert_eq(stages, WORDS);
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	rp_pmem_delete(pm);
}

/* PMEM2_FORCE_GRANULARITY does not turn off this library's flushes. */
Test(pmem, instructions_with_forced_granularity)
{
	char *p = aligned_alloc(4096, 4096);
	struct rp_pmem *pm;

	skip_in_valgrind();
	setenv("PMEM2_FORCE_GRANULARITY", "BYTE", 1);
	pm = make_pmem((uintptr_t)p, 4096, RP_METHOD_AGENT_CLWB, NULL);
	check_lines(pm, p, 1, 128);
	rp_pmem_delete(pm);
	free(p);
}

/* Flushes of memory that the program has mapped with libpmem2. */
Test(pmem, instructions_on_a_foreign_map)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct pmem2_source *src;
	struct pmem2_map *map;
	struct rp_pmem *pm;
	int fd;
	char *p = map_file(page, &fd);

	skip_in_valgrind();
	cr_assert_eq(pmem2_source_from_fd(&src, fd), 0);
	cr_assert_eq(pmem2_map_from_existing(&map, src, p, page,
					     PMEM2_GRANULARITY_BYTE),
		     0);
	pm = make_pmem((uintptr_t)p, page, RP_METHOD_AGENT_CLWB, NULL);
	check_lines(pm, p, page - 65, 65);
	rp_pmem_delete(pm);
	pmem2_map_delete(&map);
	pmem2_source_delete(&src);
}
#endif
