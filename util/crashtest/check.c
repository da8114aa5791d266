// SPDX-License-Identifier: BSD-2-Clause
/* Checks of images in child processes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/crashtest/check.h"
#include "util/crashtest/trace.h"

struct crash_job *crash_job_make(const struct crash_history *h,
				 const struct crash_image *i)
{
	struct crash_job *job = calloc(1, sizeof(*job));
	const size_t size = crash_words(h) * sizeof(*i->lost);

	if (!job)
		return NULL;
	job->image = *i;
	job->image.lost = malloc(size);
	if (!job->image.lost) {
		free(job);
		return NULL;
	}
	memcpy(job->image.lost, i->lost, size);
	return job;
}

void crash_job_free(struct crash_job *job)
{
	if (!job)
		return;
	free(job->image.lost);
	free(job->output);
	free(job);
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	remove(path);
	return 0;
}

void crash_remove(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Add a hash. Returns whether it is new. */
static bool add_hash(struct crash_checker *c, uint64_t hash)
{
	size_t i;

	if (2 * c->hash_count >= c->hash_room) {
		struct crash_checker grown = *c;

		grown.hash_room = c->hash_room ? 2 * c->hash_room : 512;
		grown.hash_count = 0;
		grown.hashes = calloc(grown.hash_room, sizeof(*c->hashes));
		if (!grown.hashes)
			return true;
		for (size_t k = 0; k < c->hash_room; k++)
			if (c->hashes[k])
				add_hash(&grown, c->hashes[k]);
		free(c->hashes);
		c->hashes = grown.hashes;
		c->hash_room = grown.hash_room;
		c->hash_count = grown.hash_count;
	}
	hash += !hash;
	for (i = hash % c->hash_room; c->hashes[i]; i = (i + 1) % c->hash_room)
		if (c->hashes[i] == hash)
			return false;
	c->hashes[i] = hash;
	c->hash_count++;
	return true;
}

static void fail(struct crash_checker *c, const char *what, const char *path,
		 int err)
{
	if (!*c->err)
		snprintf(c->err, sizeof(c->err), "%s %s: %s", what, path,
			 strerror(err));
}

/* Write the lines that were acknowledged up to the cut. */
static int write_ledger(const struct crash_history *h, uint32_t cut,
			const char *path)
{
	const struct crash_log *l = h->log;
	FILE *f = fopen(path, "we");

	if (!f)
		return -errno;
	for (size_t n = l->base; n <= cut; n++)
		if (l->events[n].kind == CRASH_ACK) {
			fwrite(l->bytes + l->events[n].data, 1,
			       l->events[n].length, f);
			fputc('\n', f);
		}
	return fclose(f) ? -errno : 0;
}

int crash_check_write(struct crash_checker *c, uint32_t cut,
		      const struct crash_tree *t, const char *dir)
{
	char path[640];
	int ret;

	snprintf(path, sizeof(path), "%s/image", dir);
	if (mkdir(path, 0700))
		return -errno;
	ret = crash_tree_write(t, path);
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "%s/ledger", dir);
	ret = write_ledger(c->history, cut, path);
	/* Let all users read it: the check of a database may switch users. */
	return ret ? ret : chmod(path, 0644) ? -errno : 0;
}

/*
 * The child cannot run the check: tell the parent why by shared memory, which
 * needs no descriptor.
 */
__attribute__((noreturn)) static void
give_up(const struct crash_slot *s, const char *what, const char *path)
{
	const int err = errno;

	snprintf(s->fault, CRASH_FAULT, "%s %s: %s%s", what, path,
		 strerror(err),
		 err == EMFILE || err == ENFILE
			 ? "; allow more open files (ulimit -n)"
			 : "");
	_exit(125);
}

static void redirect(const struct crash_slot *s)
{
	char output[640];
	int fd;

	snprintf(output, sizeof(output), "%s/output", s->dir);
	fd = open(output, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		give_up(s, "the output of --check cannot be kept in", output);
	close(fd);
	fd = open("/dev/null", O_RDONLY);
	if (fd < 0 || dup2(fd, 0) < 0)
		give_up(s, "--check cannot read", "/dev/null");
}

static void run_child(const struct crash_checker *c, const struct crash_slot *s)
{
	char image[640], ledger[640];

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(image, sizeof(image), "%s/image", s->dir);
	snprintf(ledger, sizeof(ledger), "%s/ledger", s->dir);
	redirect(s);
	if (chdir(image))
		give_up(s, "--check cannot enter", image);
	if (c->mounts && (unshare(CLONE_NEWNS) ||
			  mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)))
		give_up(s, "no mount namespace for the check of", image);
	signal(SIGPIPE, SIG_DFL);
	setenv("RPMEM_CRASHTEST_DIR", image, 1);
	setenv("RPMEM_CRASHTEST_LEDGER", ledger, 1);
	setenv("RPMEM_CRASHTEST_WORK", s->dir, 1);
	setenv("RPMEM_CRASHTEST_CHECK", c->command, 1);
	execl("/bin/sh", "sh", "-c", c->wrapper ? c->wrapper : c->command,
	      (char *)NULL);
	give_up(s, "--check cannot be run by", "/bin/sh");
}

static char *read_file(const char *dir, const char *name, size_t max)
{
	char path[640], *text = calloc(1, max + 1);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (f && text)
		text[fread(text, 1, max, f)] = 0;
	if (f)
		fclose(f);
	return text;
}

/*
 * Take the reason, if the child or its wrapper could not run the check. Returns
 * whether there is one.
 */
static bool take_fault(struct crash_checker *c, const struct crash_slot *s)
{
	bool fault;
	char *text =
		*s->fault ? strndup(s->fault, CRASH_FAULT - 1)
			  : read_file(s->dir, CRASH_UNTESTED, CRASH_FAULT - 1);

	if (text)
		text[strcspn(text, "\n")] = 0;
	fault = text && *text;
	if (fault && !*c->err)
		snprintf(c->err, sizeof(c->err), "%s", text);
	free(text);
	return fault;
}

/* Detach the loop device of a wrapper that was killed before it has done so. */
static void detach_loop(const struct crash_slot *s)
{
	char *name = read_file(s->dir, CRASH_LOOP, 64);
	int fd;

	if (name)
		name[strcspn(name, "\n")] = 0;
	fd = name && *name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		ioctl(fd, LOOP_CLR_FD, 0);
		close(fd);
	}
	free(name);
}

/*
 * Kill what a check has left running, before its folder goes. This process is
 * the subreaper: each orphan stays a zombie until it waits. A process of
 * another user, or one in an uninterruptible sleep, may outlive SIGKILL: stop
 * waiting for it after END_MS, and let poll_slots() reap it later.
 */
#define END_MS 2000
static void end_group(pid_t leader)
{
	const struct timespec pause = {0, 1000000};
	unsigned int pauses = 0;
	pid_t pid;

	kill(-leader, SIGKILL);
	while (pauses < END_MS) {
		pid = waitpid(-leader, NULL, WNOHANG);
		if (pid < 0 && errno != EINTR)
			return;
		if (!pid) {
			nanosleep(&pause, NULL);
			pauses++;
		}
	}
}

static void end_slot(struct crash_checker *c, struct crash_slot *s, int status)
{
	end_group(s->pid);
	s->job->status = status;
	s->job->output = read_file(s->dir, "output", CRASH_OUTPUT);
	s->job->untested = take_fault(c, s);
	detach_loop(s);
	crash_remove(s->dir);
	s->pid = 0;
	s->job = NULL;
}

/* The slot of a child; NULL for an orphan of a check in another session. */
static struct crash_slot *find_slot(struct crash_checker *c, pid_t pid)
{
	for (unsigned int i = 0; i < c->jobs; i++)
		if (c->slots[i].pid == pid)
			return &c->slots[i];
	return NULL;
}

static void note_interrupt(const struct crash_slot *s)
{
	snprintf(s->fault, CRASH_FAULT, "interrupted by a signal");
}

static void poll_slots(struct crash_checker *c)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct crash_slot *s = find_slot(c, pid);

		/* The signal may have ended the check as well. */
		if (s && status && crash_interrupted)
			note_interrupt(s);
		if (s)
			end_slot(c, s,
				 WIFEXITED(status) ? WEXITSTATUS(status)
						   : 128 + WTERMSIG(status));
	}
	for (unsigned int i = 0; i < c->jobs; i++) {
		struct crash_slot *s = &c->slots[i];

		if (s->pid &&
		    (crash_interrupted || rp_now_ms() > s->deadline)) {
			if (crash_interrupted)
				note_interrupt(s);
			s->job->timed_out = !crash_interrupted;
			end_slot(c, s, 124);
		}
	}
}

static struct crash_slot *free_slot(struct crash_checker *c)
{
	const struct timespec pause = {0, c->wrapper ? 5000000 : 500000};

	for (;;) {
		for (unsigned int i = 0; i < c->jobs; i++)
			if (!c->slots[i].pid)
				return &c->slots[i];
		poll_slots(c);
		nanosleep(&pause, NULL);
	}
}

/* Memory in which the child of a slot can leave a text. */
static int share_fault(struct crash_slot *s)
{
	if (!s->fault) {
		s->fault = mmap(NULL, CRASH_FAULT, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (s->fault == MAP_FAILED) {
			s->fault = NULL;
			return -errno;
		}
	}
	*s->fault = 0;
	return 0;
}

static bool start_slot(struct crash_checker *c, struct crash_job *job,
		       const struct crash_tree *t)
{
	struct crash_slot *s = free_slot(c);
	const uint32_t end = (uint32_t)c->history->log->event_count - 1;
	int ret;

	snprintf(s->dir, sizeof(s->dir), "%.480s/%llu", c->work,
		 (unsigned long long)++c->number);
	ret = mkdir(s->dir, 0755)
		      ? -errno
		      : crash_check_write(c,
					  job->all_acks ? end : job->image.cut,
					  t, s->dir);
	if (!ret)
		ret = share_fault(s);
	if (!ret) {
		fflush(NULL);
		s->pid = fork();
		if (!s->pid)
			run_child(c, s);
		if (s->pid < 0)
			ret = -errno;
		else /* as run_child() does: a kill may come before that */
			setpgid(s->pid, s->pid);
	}
	if (ret) {
		s->pid = 0;
		fail(c, "an image cannot be made in", s->dir, -ret);
		crash_remove(s->dir);
		return false;
	}
	s->job = job;
	s->deadline = rp_now_ms() + c->timeout;
	c->runs++;
	return true;
}

bool crash_check_start(struct crash_checker *c, struct crash_job *job,
		       bool only_new)
{
	const uint32_t cut = job->image.cut;
	struct crash_tree t;
	uint64_t hash;
	bool started;

	poll_slots(c);
	if (*c->err)
		return false;
	if (crash_tree_make(&t, c->history, &job->image)) {
		fail(c, "an image cannot be made in", c->work, ENOMEM);
		return false;
	}
	/* Equal bytes with other acknowledgements must be checked as well. */
	hash = crash_tree_hash(&t);
	if (cut != CRASH_NONE)
		hash ^= c->history->acks[cut] * UINT64_C(0x9e3779b97f4a7c15);
	started = (!only_new || add_hash(c, hash)) && start_slot(c, job, &t);
	crash_tree_free(&t);
	return started;
}

void crash_check_finish(struct crash_checker *c)
{
	const struct timespec pause = {0, c->wrapper ? 5000000 : 500000};

	for (;;) {
		bool some = false;

		poll_slots(c);
		for (unsigned int i = 0; i < c->jobs; i++)
			some |= c->slots[i].pid;
		if (!some)
			return;
		nanosleep(&pause, NULL);
	}
}

void crash_checker_free(struct crash_checker *c)
{
	for (unsigned int i = 0; i < CRASH_JOBS; i++)
		if (c->slots[i].fault) {
			munmap(c->slots[i].fault, CRASH_FAULT);
			c->slots[i].fault = NULL;
		}
	free(c->hashes);
	c->hashes = NULL;
	c->hash_room = c->hash_count = 0;
}
