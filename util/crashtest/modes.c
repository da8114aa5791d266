// SPDX-License-Identifier: BSD-2-Clause
/* Brings up and takes down what a tested program runs on. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/crashtest/modes.h"
#include "util/crashtest/trace.h"

static int refuse(struct crash_run *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(struct crash_run *run, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(run->err, sizeof(run->err), fmt, ap);
	va_end(ap);
	return -1;
}

static void set(const char *name, const char *value)
{
	setenv(name, value ? value : "", 1);
}

/* Set the environment variables that the scripts below use. */
static void set_variables(const struct crash_run *run)
{
	char size[32];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)run->size);
	set("CT_WORK", run->work);
	set("CT_SIZE", size);
	snprintf(size, sizeof(size), "%u", CRASH_BLOCK);
	set("CT_BLOCK", size);
	set("CT_FS", run->fs);
	set("CT_OPTIONS", run->mount_options);
	set("CT_SETUP", run->setup);
	set("CT_DAEMON", run->daemon);
}

/* Put the end of the log in the work folder, in whole lines, into err. */
static int refuse_with_log(struct crash_run *run, const char *what)
{
	char path[512], text[512], *line = text;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", run->work);
	f = fopen(path, "re");
	if (f) {
		/* A seek to before the beginning fails: the log is short. */
		const bool cut = !fseek(f, -(long)sizeof(text) + 1, SEEK_END);

		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
		text[n] = 0;
		while (n && text[n - 1] == '\n')
			text[--n] = 0;
		if (cut && strchr(text, '\n'))
			line = strchr(text, '\n') + 1;
	}
	text[n] = 0;
	return refuse(run, "%s: %s", what, line);
}

static int run_script(struct crash_run *run, const char *what,
		      const char *script)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
	char log[512];
	pid_t pid;

	snprintf(log, sizeof(log), "%s/log", run->work);
	pid = crash_plain_start(argv, NULL, log);
	if (pid < 0)
		return refuse(run, "fork: %s", strerror(-pid));
	if (crash_trace_until(run->recorder, pid, NULL))
		return refuse_with_log(run, what);
	return 0;
}

static void make_folder(const struct crash_run *run, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", run->work, name);
	mkdir(path, 0755);
}

static int start_recorder(struct crash_run *run, const char *folder)
{
	char ledger[512];

	snprintf(ledger, sizeof(ledger), "%s/ledger", run->work);
	if (crash_record_start(run->recorder, folder, ledger))
		return refuse(run, "%s", run->recorder->reason);
	run->recorder->on = true;
	return 0;
}

static const char need_tools[] =
	"[ \"$(id -u)\" = 0 ] || { echo 'a mount needs root: use sudo'; exit "
	"1; }\n"
	"case $CT_FS in\n"
	"ext[234]) p=e2fsprogs ;;\n"
	"xfs) p=xfsprogs ;;\n"
	"btrfs) p=btrfs-progs ;;\n"
	"f2fs) p=f2fs-tools ;;\n"
	"vfat) p=dosfstools ;;\n"
	"*) p=\"and the package that has mkfs.$CT_FS\" ;;\n"
	"esac\n"
	"for t in nbdkit nbdfuse losetup mount mkfs.$CT_FS; do\n"
	"	command -v $t >/dev/null || { echo \"$t is missing; on Debian: "
	"apt-get install nbdkit libnbd-bin mount util-linux $p\"; exit 1; }\n"
	"done\n"
	"[ -e /dev/fuse ] || { echo 'no /dev/fuse: load the module fuse'; "
	"exit 1; }\n"
	"[ -e /dev/loop-control ] || { echo 'no /dev/loop-control: load the "
	"module loop'; exit 1; }\n";

static const char make_device[] =
	"set -e\n"
	"truncate -s \"$CT_SIZE\" \"$CT_WORK/disk/disk\"\n"
	"l=$(losetup --sector-size $CT_BLOCK --find --show "
	"\"$CT_WORK/disk/disk\")\n"
	"trap 'losetup -d \"$l\"' EXIT\n"
	"mkfs.$CT_FS -q \"$l\" >&2\n"
	"mount \"$l\" \"$CT_WORK/mnt\"\n"
	"chmod 755 \"$CT_WORK/mnt\"\n"
	"s=0; RPMEM_CRASHTEST_DIR=$CT_WORK/mnt sh -c \"${CT_SETUP:-:}\" || "
	"s=$?\n"
	"umount \"$CT_WORK/mnt\"\n"
	"exit $s\n";

static const char mount_device[] =
	"set -e\n"
	"losetup --sector-size $CT_BLOCK --find --show "
	"\"$CT_WORK/fuse/disk\" >\"$CT_WORK/loop\"\n"
	"s=0; mount ${CT_OPTIONS:+-o \"$CT_OPTIONS\"} "
	"\"$(cat \"$CT_WORK/loop\")\" \"$CT_WORK/mnt\" || s=$?\n"
	"losetup -d \"$(cat \"$CT_WORK/loop\")\" # when it is unmounted\n"
	"exit $s\n";

static const char unmount_device[] =
	"umount \"$CT_WORK/mnt\" 2>/dev/null || umount -l \"$CT_WORK/mnt\"\n"
	"umount \"$CT_WORK/fuse\" || umount -l \"$CT_WORK/fuse\"\n"
	"exit 0\n";

/* nbdkit writes pid_file once it accepts connections to the socket. */
static pid_t start_nbdkit(struct crash_run *run, const char *socket,
			  const char *pid_file)
{
	char *argv[CRASH_FILTERS + 10], disk[512], log[512];
	unsigned int n = 0;

	snprintf(disk, sizeof(disk), "file=%s/disk/disk", run->work);
	snprintf(log, sizeof(log), "%s/log", run->work);
	argv[n++] = (char *)"nbdkit";
	argv[n++] = (char *)"-f";
	argv[n++] = (char *)"-U";
	argv[n++] = (char *)socket;
	argv[n++] = (char *)"-P";
	argv[n++] = (char *)pid_file;
	for (unsigned int i = 0; i < run->filter_count; i++)
		if (!strncmp(run->filters[i], "--filter=", 9))
			argv[n++] = (char *)run->filters[i];
	argv[n++] = (char *)"file";
	argv[n++] = disk;
	for (unsigned int i = 0; i < run->filter_count; i++)
		if (strncmp(run->filters[i], "--filter=", 9))
			argv[n++] = (char *)run->filters[i];
	argv[n] = NULL;
	return crash_trace_start(argv, NULL, log);
}

/* Mounts in a namespace end with its last process, however this one ends. */
static int separate_mounts(struct crash_run *run)
{
	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return refuse(run, "no mount namespace: %s", strerror(errno));
	return 0;
}

static int start_device(struct crash_run *run)
{
	char folder[512], socket[512], uri[640], shown[512], log[512];
	char pid_file[512];
	char *fuse[] = {(char *)"nbdfuse", shown, uri, NULL};

	if (run_script(run, "no block device", need_tools) ||
	    separate_mounts(run))
		return -1;
	make_folder(run, "disk");
	make_folder(run, "mnt");
	make_folder(run, "fuse");
	if (run_script(run, "the file system or --setup", make_device))
		return -1;
	snprintf(folder, sizeof(folder), "%s/disk", run->work);
	snprintf(socket, sizeof(socket), "%s/nbd", run->work);
	snprintf(pid_file, sizeof(pid_file), "%s/pid", run->work);
	snprintf(uri, sizeof(uri), "nbd+unix:///?socket=%s", socket);
	snprintf(shown, sizeof(shown), "%s/fuse/disk", run->work);
	snprintf(log, sizeof(log), "%s/log", run->work);
	if (start_recorder(run, folder))
		return -1;
	run->service = start_nbdkit(run, socket, pid_file);
	if (run->service < 0 ||
	    crash_trace_until(run->recorder, run->service, pid_file))
		return refuse_with_log(run, "nbdkit");
	run->fuse = crash_plain_start(fuse, NULL, log);
	if (run->fuse < 0 || crash_trace_until(run->recorder, run->fuse, shown))
		return refuse_with_log(run, "nbdfuse");
	/*
	 * Mount in another namespace than that of nbdfuse: as the last process
	 * of its namespace, nbdfuse would unmount the device, for which it
	 * serves the reads and writes itself, and hang.
	 */
	if (separate_mounts(run))
		return -1;
	return run_script(run, "the device cannot be mounted", mount_device);
}

static void daemon_argv(const struct crash_run *run, char *argv[10],
			char paths[2][512], const char *size)
{
	unsigned int n = 0;

	snprintf(paths[0], 512, "%s/port", run->work);
	snprintf(paths[1], 512, "%s/pool/pool", run->work);
	argv[n++] = (char *)run->daemon;
	argv[n++] = (char *)"--port";
	argv[n++] = (char *)"0";
	argv[n++] = (char *)"--port-file";
	argv[n++] = paths[0];
	if (size) {
		argv[n++] = (char *)"--create";
		argv[n++] = (char *)size;
	}
	argv[n++] = paths[1];
	argv[n] = NULL;
}

static const char setup_pool[] =
	"export RPMEM_CRASHTEST_POOL=\"127.0.0.1:$(cat "
	"\"$CT_WORK/port\"):pool\"\n"
	"exec sh -c \"${CT_SETUP:-:}\"\n";

/* Create the pool, and run --setup, before the recorder starts. */
static int make_pool(struct crash_run *run)
{
	char *argv[10], paths[2][512], size[32], log[512];
	int ret;

	snprintf(size, sizeof(size), "%llu", (unsigned long long)run->size);
	snprintf(log, sizeof(log), "%s/log", run->work);
	daemon_argv(run, argv, paths, size);
	run->service = crash_plain_start(argv, NULL, log);
	if (run->service < 0 ||
	    crash_trace_until(run->recorder, run->service, paths[0]))
		return refuse_with_log(run, "fi_rpmemd");
	ret = run_script(run, "--setup", setup_pool);
	kill(run->service, SIGTERM);
	crash_trace_until(run->recorder, run->service, NULL);
	run->service = 0;
	unlink(paths[0]);
	return ret;
}

static int start_pool(struct crash_run *run)
{
	char *argv[10], paths[2][512], log[512], folder[512];

	make_folder(run, "pool");
	snprintf(folder, sizeof(folder), "%s/pool", run->work);
	snprintf(log, sizeof(log), "%s/log", run->work);
	if (make_pool(run) || start_recorder(run, folder))
		return -1;
	daemon_argv(run, argv, paths, NULL);
	run->service = crash_trace_start(argv, NULL, log);
	if (run->service < 0 ||
	    crash_trace_until(run->recorder, run->service, paths[0]))
		return refuse_with_log(run, "fi_rpmemd");
	return 0;
}

int crash_mode_start(struct crash_run *run)
{
	char ledger[512];
	int fd;

	snprintf(ledger, sizeof(ledger), "%s/ledger", run->work);
	fd = open(ledger, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || fchmod(fd, 0666))
		return refuse(run, "%s: %s", ledger, strerror(errno));
	close(fd);
	run->recorder->device = run->mode == CRASH_DEVICE;
	run->recorder->log.sector =
		run->mode == CRASH_DEVICE ? CRASH_BLOCK : CRASH_SECTOR;
	/* nbdkit maps nothing; a store of COMMAND is a write of the device. */
	run->recorder->log.store = run->mode == CRASH_DEVICE
					   ? run->recorder->log.sector
					   : CRASH_WORD;
	set_variables(run);
	if (run->mode == CRASH_DEVICE)
		return start_device(run);
	if (run->mode == CRASH_POOL)
		return start_pool(run);
	return start_recorder(run, run->folder);
}

void crash_mode_write_back(struct crash_run *run)
{
	if (run->fuse > 0) {
		run_script(run, "unmount", unmount_device);
		kill(run->fuse, SIGTERM);
		crash_trace_until(run->recorder, run->fuse, NULL);
	}
	run->fuse = 0;
}

void crash_mode_stop(struct crash_run *run)
{
	crash_mode_write_back(run);
	run->recorder->on = false;
	run->service = 0;
	crash_trace_kill(run->recorder, 0);
}

void crash_mode_env(const struct crash_run *run, char *env[4])
{
	static char dir[PATH_MAX], ledger[512], pool[512];
	char port[512];
	FILE *f;

	env[2] = env[3] = NULL;
	snprintf(ledger, sizeof(ledger), "RPMEM_CRASHTEST_LEDGER=%s/ledger",
		 run->work);
	env[0] = ledger;
	env[1] = dir;
	if (run->mode == CRASH_FILES) {
		snprintf(dir, sizeof(dir), "RPMEM_CRASHTEST_DIR=%.4000s",
			 run->recorder->root);
		return;
	}
	snprintf(dir, sizeof(dir), "RPMEM_CRASHTEST_DIR=%s/mnt", run->work);
	if (run->mode == CRASH_DEVICE)
		return;
	snprintf(port, sizeof(port), "%s/port", run->work);
	f = fopen(port, "re");
	if (f && fgets(port, sizeof(port), f))
		port[strcspn(port, "\n")] = 0;
	if (f)
		fclose(f);
	snprintf(pool, sizeof(pool),
		 "RPMEM_CRASHTEST_POOL=127.0.0.1:%.16s:pool", port);
	env[1] = pool;
}

void crash_mode_repeat(const struct crash_run *run)
{
	set_variables(run);
}

/* Shell function for failures of which the image is not the cause. */
#define UNTESTED                                                               \
	"w=$RPMEM_CRASHTEST_WORK\n"                                            \
	"untested() { printf '%s\\n' \"$*\" >\"$w/" CRASH_UNTESTED             \
	"\"; exit 125; }\n"

/* Status 2 of mount(8) is a failure of the system, such as no memory. */
static const char check_device[] = UNTESTED
	"m=$w/mnt; mkdir \"$m\" || untested \"$m cannot be made\"\n"
	"l=$(losetup --sector-size $CT_BLOCK --find --show "
	"\"$RPMEM_CRASHTEST_DIR/disk\" 2>\"$w/said\") || untested "
	"\"an image has no loop device: $(tail -n 1 \"$w/said\"); "
	"free some (losetup --list), or give a smaller --jobs\"\n"
	"echo \"$l\" >\"$w/" CRASH_LOOP "\"\n"
	"mount ${CT_OPTIONS:+-o \"$CT_OPTIONS\"} \"$l\" \"$m\" 2>\"$w/said\"; "
	"s=$?\n"
	"rm -f \"$w/" CRASH_LOOP "\"\n"
	"losetup -d \"$l\" # when it is unmounted\n"
	"cat \"$w/said\"\n"
	"case $s in\n"
	"0) ;;\n"
	"2 | 126 | 127) untested \"mount of an image fails, and its file "
	"system is not the cause: $(tail -n 1 \"$w/said\")\" ;;\n"
	"*) echo 'the file system of the image cannot be mounted'; exit 32 ;;\n"
	"esac\n"
	"cd \"$m\" || { echo 'the file system of the image has no root'; "
	"exit 32; }\n"
	"export RPMEM_CRASHTEST_DIR=\"$m\"\n"
	"exec sh -c \"$RPMEM_CRASHTEST_CHECK\"\n";

/*
 * A daemon that refuses the image convicts it, unless it refuses a new pool as
 * well: then the machine or the daemon is the cause.
 */
static const char check_pool[] = UNTESTED
	"serve() {\n"
	"	rm -f \"$w/port\"\n"
	"	\"$CT_DAEMON\" --port 0 --port-file \"$w/port\" \"$@\" "
	">\"$w/said\" 2>&1 & d=$!\n"
	"	until [ -s \"$w/port\" ]; do\n"
	"		kill -0 $d 2>/dev/null || return 1\n"
	"		sleep 0.05\n"
	"	done\n"
	"}\n"
	"serve \"$RPMEM_CRASHTEST_DIR/pool\" || {\n"
	"	cat \"$w/said\"\n"
	"	echo 'fi_rpmemd does not start on the image'\n"
	"	mkdir \"$w/new\"\n"
	"	serve --create \"$CT_SIZE\" \"$w/new/pool\" || untested "
	"\"fi_rpmemd starts neither on an image nor on a new pool: "
	"$(tail -n 1 \"$w/said\")\"\n"
	"	kill -9 $d; exit 33\n"
	"}\n"
	"RPMEM_CRASHTEST_POOL=\"127.0.0.1:$(cat \"$w/port\"):pool\" "
	"sh -c \"$RPMEM_CRASHTEST_CHECK\"\n"
	"s=$?; kill -9 $d; exit $s\n";

void crash_mode_checker(const struct crash_run *run, struct crash_checker *c)
{
	c->mounts = run->mode == CRASH_DEVICE;
	if (run->mode == CRASH_DEVICE)
		c->wrapper = check_device;
	if (run->mode == CRASH_POOL)
		c->wrapper = check_pool;
}
