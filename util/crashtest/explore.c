// SPDX-License-Identifier: BSD-2-Clause
/* The steps of a run: record, make images, check them, shrink a failure. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/crashtest/crashtest.h"
#include "util/crashtest/trace.h"

static int refuse(struct crash_test *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(struct crash_test *t, const char *fmt, ...)
{
	va_list ap;

	if (*t->reason)
		return -1;
	va_start(ap, fmt);
	vsnprintf(t->reason, sizeof(t->reason), fmt, ap);
	va_end(ap);
	return -1;
}

static bool is_replaced(struct crash_recorder *r)
{
	struct stat st;

	const struct crash_file *f =
		stat(r->root, &st) ? NULL : crash_record_find(r, &st);

	return !f || f->inode;
}

static bool is_mount(struct crash_recorder *r, const char *below)
{
	char path[2 * PATH_MAX];
	struct stat st, root;

	snprintf(path, sizeof(path), "%s/%s", r->root, below);
	return !stat(r->root, &root) && !lstat(path, &st) &&
	       st.st_dev != root.st_dev;
}

/* Compare the image of all events with the folder: both must be equal. */
static int compare(struct crash_test *t)
{
	const struct crash_log *l = &t->recorder.log;
	struct crash_history h;
	struct crash_image i = {0};
	struct crash_tree tree;
	const char *bad = NULL;
	int ret;

	if (l->event_count == l->base)
		return refuse(t,
			      "COMMAND has changed nothing that is recorded; "
			      "does it use $RPMEM_CRASHTEST_DIR?");
	ret = crash_history_make(&h, l);
	if (ret)
		return refuse(t, "out of memory");
	i.cut = (uint32_t)l->event_count - 1;
	i.meta = h.meta_made[i.cut];
	i.lost = calloc(crash_words(&h), sizeof(*i.lost));
	ret = i.lost ? crash_tree_make(&tree, &h, &i) : -ENOMEM;
	if (!ret) {
		bad = crash_tree_compare(&tree, t->recorder.root);
		crash_tree_free(&tree);
	}
	free(i.lost);
	crash_history_free(&h);
	if (ret)
		return refuse(t, "out of memory");
	if (bad && is_replaced(&t->recorder))
		return refuse(t,
			      "COMMAND has replaced the folder %s, or mounted "
			      "something on it; let it keep the folder",
			      t->recorder.root);
	if (bad && is_mount(&t->recorder, bad))
		return refuse(t,
			      "another file system is mounted at or above %s; "
			      "unmount it, or give its folder to --files",
			      bad);
	if (bad)
		return refuse(t,
			      "%s was changed in a way that is not recorded: "
			      "by a process that COMMAND has not started, or "
			      "by the kernel",
			      bad);
	return 0;
}

/* The number of folders in an entry's path below the recorded folder. */
static int depth(const char *path)
{
	int n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* Does a symbolic link at this depth lead out of the folder? */
static bool leads_out(const char *to, int at)
{
	if (*to == '/')
		return true;
	while (*to) {
		const size_t n = strcspn(to, "/");

		if (n == 2 && !strncmp(to, "..", 2))
			at--;
		else if (n && !(n == 1 && *to == '.'))
			at++;
		if (at < 0)
			return true;
		to += n + (to[n] == '/');
	}
	return false;
}

/* Refuse links out of the folder: a check would follow them to live files. */
static int follow_links(struct crash_test *t)
{
	const struct crash_log *l = &t->recorder.log;

	for (size_t n = 0; n < l->event_count; n++) {
		const struct crash_step *e = &l->events[n];
		const char *path, *to;

		if (!crash_step_is_meta(e) || e->kind == CRASH_UNLINK ||
		    e->inode >= l->inode_count ||
		    !S_ISLNK(l->inodes[e->inode].mode) ||
		    e->target == CRASH_NO_DATA)
			continue;
		path = l->bytes + e->target;
		if (e->kind == CRASH_RENAME && e->name2 != CRASH_NO_DATA)
			path = l->bytes + e->name2;
		to = l->bytes + l->inodes[e->inode].target;
		if (leads_out(to, depth(path)))
			return refuse(t,
				      "the symbolic link %s leads out of the "
				      "folder, to %s, which no image has; make "
				      "it relative, to a place in the folder",
				      path, to);
	}
	return 0;
}

static int run_command(struct crash_test *t)
{
	struct crash_run *run = &t->o->run;
	struct crash_recorder *r = &t->recorder;
	unsigned int killed;
	char *env[4];
	pid_t pid;

	crash_mode_env(run, env);
	pid = crash_trace_start(t->o->command, env, NULL);
	if (pid < 0)
		return refuse(t,
			      "COMMAND cannot be recorded: %s; ptrace and "
			      "seccomp must be allowed here",
			      strerror(-pid));
	t->command_status = crash_trace_until(r, pid, NULL);
	/* The last cut is at COMMAND's end: kill processes that it left. */
	killed = crash_trace_kill(r,
				  run->mode == CRASH_DEVICE ? run->service : 0);
	/* Do not count fi_rpmemd, which this tool has started for a pool. */
	t->killed = killed - (run->mode == CRASH_POOL && killed);
	crash_mode_write_back(run);
	crash_record_stores(r, 0);
	if (crash_interrupted)
		return refuse(t, "interrupted by a signal");
	if (r->log.failed)
		crash_record_miss(r, "out of memory");
	if (!t->command_status)
		crash_record_end(r);
	if (*r->reason)
		return refuse(t, "%s", r->reason);
	if (t->command_status && !t->o->any_status)
		return refuse(t,
			      "COMMAND ended with %s %d; give --any-status "
			      "if that is part of the test",
			      WIFEXITED(t->command_status) ? "status"
							   : "signal",
			      WIFEXITED(t->command_status)
				      ? WEXITSTATUS(t->command_status)
				      : WTERMSIG(t->command_status));
	return compare(t) || follow_links(t) ? -1 : 0;
}

/* Is a path in the folder, or the folder itself? */
static bool is_below(const char *path, const char *folder)
{
	char full[PATH_MAX], root[PATH_MAX];
	size_t n;

	if (!realpath(path, full) || !realpath(folder, root))
		return false;
	n = strlen(root);
	return !strncmp(full, root, n) && (!full[n] || full[n] == '/');
}

static int refuse_inside(struct crash_run *run)
{
	const char *tmp = getenv("TMPDIR");

	if (run->mode == CRASH_FILES && run->folder &&
	    is_below(tmp && *tmp ? tmp : "/var/tmp", run->folder)) {
		snprintf(run->err, sizeof(run->err),
			 "the folder for images, %.200s, is below --files "
			 "%.400s; set TMPDIR to another folder",
			 tmp && *tmp ? tmp : "/var/tmp", run->folder);
		return -1;
	}
	return 0;
}

static int make_work(struct crash_run *run)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(run->work, sizeof(run->work), "%.200s/crashtest.XXXXXX",
		 tmp && *tmp ? tmp : "/var/tmp");
	if (!mkdtemp(run->work) || chmod(run->work, 0711)) {
		snprintf(run->err, sizeof(run->err), "%s: %s; set TMPDIR",
			 run->work, strerror(errno));
		*run->work = 0;
		return -1;
	}
	return 0;
}

int crash_test_record(struct crash_test *t)
{
	struct crash_run *run = &t->o->run;
	int ret;

	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	t->recorder.ledger_fd = -1;
	run->recorder = &t->recorder;
	ret = refuse_inside(run) || make_work(run) ? -1 : crash_mode_start(run);
	if (ret)
		refuse(t, "%s", *run->err ? run->err : t->recorder.reason);
	else
		ret = run_command(t);
	crash_mode_stop(run);
	crash_record_free(&t->recorder);
	t->log = t->recorder.log;
	t->recorder.log = (struct crash_log){0};
	return ret;
}

static bool add_job(void *arg, const struct crash_image *image)
{
	struct crash_test *t = arg;
	struct crash_job *job = crash_job_make(&t->history, image);

	/* A run that leaves out an image must not acquit. */
	if (!job || crash_interrupted)
		snprintf(t->checker.err, sizeof(t->checker.err), "%s",
			 job ? "interrupted by a signal" : "out of memory");
	if (!job || crash_interrupted ||
	    !crash_check_start(&t->checker, job, true)) {
		t->sample.ended = *t->checker.err;
		crash_job_free(job);
		return false;
	}
	job->next = t->jobs;
	t->jobs = job;
	return true;
}

static size_t count_lost(const struct crash_test *t, const struct crash_job *j)
{
	size_t n = t->history.meta_made[j->image.cut] - j->image.meta;

	for (size_t i = 0; i < t->history.piece_count; i++)
		n += crash_bit(j->image.lost, i);
	return n;
}

/* Check a cut that loses nothing. Returns the status; -1: it could not run. */
static int check_one(struct crash_test *t, uint32_t cut, char **output,
		     bool *timed_out)
{
	struct crash_image i = {.cut = cut};
	struct crash_job *job;
	int status = -1;

	if (cut != CRASH_NONE)
		i.meta = t->history.meta_made[cut];
	i.lost = calloc(crash_words(&t->history), sizeof(*i.lost));
	job = i.lost ? crash_job_make(&t->history, &i) : NULL;
	free(i.lost);
	if (!job)
		refuse(t, "out of memory");
	if (job && crash_check_start(&t->checker, job, false)) {
		crash_check_finish(&t->checker);
		status = *t->checker.err ? -1 : job->status;
		*timed_out = job->timed_out;
		if (output) {
			*output = job->output;
			job->output = NULL;
		}
	}
	crash_job_free(job);
	return status;
}

/* Refuse a check that fails where nothing is lost. */
static int try_check(struct crash_test *t)
{
	char *output = NULL;
	bool timed_out = false;
	const int status = check_one(t, (uint32_t)t->log.event_count - 1,
				     &output, &timed_out);

	if (status < 0)
		refuse(t, "%s", t->checker.err);
	else if (status)
		refuse(t,
		       "--check %s (status %d) where nothing is lost, so it "
		       "shows nothing about a power cut: %.600s",
		       timed_out ? "takes longer than --timeout" : "fails",
		       status, output ? output : "");
	free(output);
	return status ? -1 : 0;
}

/* Refuse a check that passes though all acknowledged work is missing. */
static int try_blind(struct crash_test *t)
{
	struct crash_history *h = &t->history;
	const size_t last = t->log.event_count - 1;
	struct crash_image i = {.cut = CRASH_NONE};
	struct crash_job *job;
	bool passes;
	uint32_t *acks = h->acks;

	if (!acks[last])
		return 0;
	i.lost = calloc(crash_words(h), sizeof(*i.lost));
	job = i.lost ? crash_job_make(h, &i) : NULL;
	free(i.lost);
	if (!job)
		return refuse(t, "out of memory");
	job->all_acks = true;
	passes = crash_check_start(&t->checker, job, false);
	crash_check_finish(&t->checker);
	passes = passes && !job->status;
	crash_job_free(job);
	if (*t->checker.err)
		return refuse(t, "%s", t->checker.err);
	if (passes)
		return refuse(t, "--check passes on the state before COMMAND "
				 "with all acknowledgements, so it sees no "
				 "loss: let it read $RPMEM_CRASHTEST_LEDGER");
	return 0;
}

static void start_checker(struct crash_test *t)
{
	struct crash_checker *c = &t->checker;

	c->history = &t->history;
	c->command = t->o->check;
	c->work = t->o->run.work;
	c->jobs = t->o->jobs;
	c->timeout = t->o->timeout * 1000;
	crash_mode_checker(&t->o->run, c);
}

static const struct crash_job *smallest_failure(struct crash_test *t)
{
	const struct crash_job *best = NULL;
	size_t least = SIZE_MAX;

	for (const struct crash_job *j = t->jobs; j; j = j->next) {
		size_t n;

		if (j->untested)
			continue;
		t->checked++;
		if (!j->status)
			continue;
		t->failed++;
		n = count_lost(t, j);
		if (n < least) {
			least = n;
			best = j;
		}
	}
	return best;
}

static int keep_image(struct crash_test *t, const struct crash_image *i)
{
	const char *dir = t->o->keep;
	struct crash_tree tree;
	int ret;

	if (!dir)
		return 0;
	ret = mkdir(dir, 0755) ? -errno
			       : crash_tree_make(&tree, &t->history, i);
	if (!ret) {
		ret = crash_check_write(&t->checker, i->cut, &tree, dir);
		crash_tree_free(&tree);
	}
	return ret ? refuse(t, "--keep %s: %s", dir, strerror(-ret)) : 0;
}

static char *quote(const char *s)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fputc('\'', f);
	for (; *s; s++)
		fputs(*s == '\'' ? "'\\''" : (char[]){*s, 0}, f);
	fputc('\'', f);
	return fclose(f) ? NULL : text;
}

/* The mode, as options of a command line. */
static char *mode_text(const struct crash_run *run)
{
	char *options = run->mount_options ? quote(run->mount_options) : NULL;
	char *text = NULL;
	int ret;

	if (run->mode == CRASH_FILES)
		ret = asprintf(&text, "--files .");
	else if (run->mode == CRASH_POOL)
		ret = asprintf(&text, "--pool %llu",
			       (unsigned long long)run->size);
	else
		ret = asprintf(&text, "--device %llu%s%s",
			       (unsigned long long)run->size,
			       options ? " --mount-options " : "",
			       options ? options : "");
	free(options);
	return ret < 0 ? NULL : text;
}

/* A command line that checks the image again. */
static int make_repeat(struct crash_test *t)
{
	char *image = crash_image_text(&t->history, &t->shrunk.job->image);
	char *log = quote(t->o->log), *check = quote(t->o->check);
	char *mode = mode_text(&t->o->run);
	int ret = -1;

	if (mode && image && log && check)
		ret = asprintf(&t->repeat,
			       "fi_rpmem_crashtest %s --log %s --image %s "
			       "--timeout %llu --check %s",
			       mode, log, image,
			       (unsigned long long)t->o->timeout, check);
	free(image);
	free(log);
	free(check);
	free(mode);
	return ret < 0 ? refuse(t, "out of memory") : 0;
}

static int shrink(struct crash_test *t, const struct crash_job *failed)
{
	int ret = crash_shrink(&t->checker, failed, &t->shrunk);

	if (ret)
		return refuse(t, "%s", strerror(-ret));
	if (!t->o->log)
		t->o->log = "crashtest.log";
	ret = crash_log_save(&t->log, t->o->log);
	if (ret)
		return refuse(t, "%s: %s; give --log FILE", t->o->log,
			      strerror(-ret));
	return make_repeat(t) || keep_image(t, &t->shrunk.job->image) ? -1 : 0;
}

int crash_test_explore(struct crash_test *t)
{
	struct crash_checker *c = &t->checker;
	const struct crash_job *failed;
	int ret;

	if (t->log.failed || crash_history_make(&t->history, &t->log))
		return refuse(t, "out of memory");
	if (t->o->log) {
		ret = crash_log_save(&t->log, t->o->log);
		if (ret)
			return refuse(t, "%s: %s", t->o->log, strerror(-ret));
	}
	start_checker(t);
	if (try_check(t) || try_blind(t))
		return -1;
	t->sample = (struct crash_sample){
		.history = &t->history,
		.images = t->o->images,
		.seed = t->o->seed,
		.visit = add_job,
		.arg = t,
	};
	ret = crash_sample_run(&t->sample);
	crash_check_finish(&t->checker);
	if (ret && !*c->err)
		snprintf(c->err, sizeof(c->err), "out of memory");
	failed = smallest_failure(t);
	if (!failed)
		return *c->err ? refuse(t, "%s", c->err) : 0;
	ret = shrink(t, failed);
	/* Images that the tool could not check do not undo a failure. */
	if (*c->err)
		refuse(t, "%s; no image was checked after that", c->err);
	return ret;
}

/* Parse --image. It is legal if crash_image_settle() does not change it. */
static int parse_image(struct crash_test *t, struct crash_image *i)
{
	const size_t size = crash_words(&t->history) * sizeof(*i->lost);
	uint64_t *given = malloc(size);
	uint32_t meta, zeros;
	char *legal;

	i->lost = calloc(1, size);
	if (!given || !i->lost) {
		free(given);
		return refuse(t, "out of memory");
	}
	if (crash_image_parse(&t->history, t->o->image, i)) {
		free(given);
		return refuse(t,
			      "--image %s is no image of this log; give it as "
			      "the report prints it",
			      t->o->image);
	}
	memcpy(given, i->lost, size);
	meta = i->meta;
	zeros = i->zeros;
	if (crash_image_settle(&t->history, i) == CRASH_NO_MEMORY) {
		free(given);
		return refuse(t, "out of memory");
	}
	if (meta != i->meta || zeros != i->zeros ||
	    memcmp(given, i->lost, size)) {
		legal = crash_image_text(&t->history, i);
		refuse(t,
		       "a power cut cannot leave --image %s: at this cut some "
		       "of it is flushed or not yet written; the legal image "
		       "next to it is %s",
		       t->o->image, legal ? legal : "unknown");
		free(legal);
	}
	free(given);
	return *t->reason ? -1 : 0;
}

int crash_test_repeat(struct crash_test *t)
{
	struct crash_image i = {0};
	struct crash_job *job = NULL;
	int ret = crash_log_load(&t->log, t->o->log);

	if (ret)
		return refuse(t, "%s",
			      ret == -EBADMSG ? "no log of this version of "
						"fi_rpmem_crashtest"
					      : strerror(-ret));
	if (make_work(&t->o->run))
		return refuse(t, "%s", t->o->run.err);
	if (crash_history_make(&t->history, &t->log))
		return refuse(t, "out of memory");
	start_checker(t);
	crash_mode_repeat(&t->o->run);
	ret = parse_image(t, &i);
	if (!ret) {
		job = crash_job_make(&t->history, &i);
		ret = -1;
		if (!job)
			refuse(t, "out of memory");
		else if (!crash_check_start(&t->checker, job, false))
			refuse(t, "%s", t->checker.err);
		else
			ret = 0;
		crash_check_finish(&t->checker);
	}
	if (!ret && *t->checker.err)
		ret = refuse(t, "%s", t->checker.err);
	if (!ret) {
		fputs(job->output ? job->output : "", stdout);
		t->checked = 1;
		t->failed = job->status != 0;
		ret = keep_image(t, &i);
	}
	crash_job_free(job);
	free(i.lost);
	return ret;
}

void crash_test_free(struct crash_test *t)
{
	while (t->jobs) {
		struct crash_job *next = t->jobs->next;

		crash_job_free(t->jobs);
		t->jobs = next;
	}
	crash_job_free(t->shrunk.job);
	free(t->repeat);
	crash_checker_free(&t->checker);
	crash_history_free(&t->history);
	crash_log_free(&t->log);
	if (*t->o->run.work)
		crash_remove(t->o->run.work);
}
