// SPDX-License-Identifier: BSD-2-Clause
/*
 * The program of the scale tests: many commits, ranges, bytes or peers at once.
 * The arguments select the case.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/scale.h"

pid_t scale_fork(scale_fn fn, void *shared, unsigned int number)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		MUST(-errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn(shared, number);
		fflush(stdout);
		_exit(0);
	}
	return pid;
}

bool scale_join(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && !status;
}

void scale_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void *scale_shared(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		MUST(-errno);
	return p;
}

double scale_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void scale_sleep_ms(unsigned int ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

size_t scale_rss(pid_t pid)
{
	unsigned long pages = 0;
	char path[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%*u %lu", &pages) != 1)
		MUST(-ESRCH);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

unsigned int scale_fds(pid_t pid)
{
	unsigned int n = 0;
	struct dirent *de;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		MUST(-errno);
	while ((de = readdir(dir)))
		n += de->d_name[0] != '.';
	closedir(dir);
	return n;
}

char *scale_map(const char *path, size_t len)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	char *p;

	if (fd < 0 || ftruncate(fd, (off_t)len))
		MUST(-errno);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		MUST(-errno);
	close(fd);
	return p;
}

void scale_export(struct side *s, struct scale_pool *p, struct card *c)
{
	memset(c, 0, sizeof(*c));
	MUST(fi_mr_reg(s->domain, p->map, p->len,
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, FI_RMA_PMEM,
		       &p->mr, NULL));
	c->len = sizeof(c->name);
	MUST(fi_getname(&s->ep->fid, c->name, &c->len));
	c->pool_key = fi_mr_key(p->mr);
	c->pool_addr = s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			       ? (uintptr_t)p->map
			       : 0;
}

void scale_serve(struct side *s, const atomic_bool *stop)
{
	struct fi_cq_tagged_entry e;

	while (!atomic_load(stop))
		fi_cq_sread(s->cq, &e, 1, NULL, 100);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: scale commits COUNT [FILE]   16 initiators\n"
		"       scale ranges COUNT [FILE]    in one commit\n"
		"       scale sparse FILE            beyond 4 GiB and 1 TiB\n"
		"       scale mesh PROCESSES ENDPOINTS\n"
		"       scale peers COUNT            bytes for each\n"
		"Without FILE the memory is emulated: FI_OFI_RPMEM_EMULATE=1,\n"
		"FI_OFI_RPMEM_CLASS=none.\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *file = argc > 3 ? argv[3] : NULL;
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	struct rlimit fds;

	setbuf(stdout, NULL);
	if (!getrlimit(RLIMIT_NOFILE, &fds)) {
		fds.rlim_cur = fds.rlim_max;
		setrlimit(RLIMIT_NOFILE, &fds);
	}
	if (!strcmp(what, "commits") && n)
		scale_commits(n, file);
	else if (!strcmp(what, "ranges") && n)
		scale_ranges(n, file);
	else if (!strcmp(what, "sparse") && argc > 2)
		scale_sparse(argv[2]);
	else if (!strcmp(what, "mesh") && n && file)
		scale_mesh((unsigned int)n, (unsigned int)atoi(file));
	else if (!strcmp(what, "peers") && n)
		scale_peers((unsigned int)n);
	else
		return usage();
	return tap_done();
}
