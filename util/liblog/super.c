// SPDX-License-Identifier: BSD-2-Clause
/* The two superblocks of a log. */
#include "config.h"

#include <errno.h>

#include "liblog/log.h"
#include "util/bytes.h"

/* Submit super_next with the next turn and the present mark. */
static int super_start(struct rpmem_log *log)
{
	struct log_post *p = &log->super_post;

	log->super_next.turn = log->super.turn + 1;
	log->super_next.mark = log->durable;
	log->super_next.logs = log->io.logs ?: 1; /* 0 in version 1 */
	log->super_next.log = log->io.log;
	log_super_encode(&log->super_next, log->super_bytes);
	*p = (struct log_post){
		.kind = LOG_POST_SUPER,
		.op = {.type = RPMEM_POOL_WRITE,
		       .flags = RPMEM_POOL_DURABLE,
		       .buf = log->super_bytes,
		       .len = sizeof(log->super_bytes),
		       .offset = log->super_next.turn % 2 * LOG_SLOT},
	};
	p->op.context = p;
	if (log->io.submit(log->io.arg, &p->op)) {
		log_fail(log, -EIO, rpmem_pool_error());
		return -EIO;
	}
	log->super_busy = true;
	return 0;
}

int log_super_write(struct rpmem_log *log, uint64_t head, uint64_t epoch)
{
	while (log->super_busy)
		log_progress(log, -1);
	if (log->failed)
		return log_check(log);
	log->super_next = log->super;
	log->super_next.epoch = epoch;
	if (head > log->super.head)
		log->super_next.head = head;
	if (!super_start(log))
		while (log->super_busy)
			log_progress(log, -1);
	return log_check(log);
}

void log_super_publish(struct rpmem_log *log)
{
	if (log->read_only || log->super_busy || log->failed ||
	    log->durable == log->super.mark)
		return;
	log->super_next = log->super;
	super_start(log);
}

/* Whether s is of another part, or of a pool with another number of logs. */
static bool is_other(const struct rpmem_log *log, const struct log_super *s)
{
	return s->logs &&
	       (s->logs != (log->io.logs ?: 1) || s->log != log->io.log);
}

int log_super_read(struct rpmem_log *log)
{
	unsigned char bytes[LOG_SLOT + LOG_SUPER_BYTES];
	struct log_super s, best = {.turn = 0};
	unsigned int intact = 0;
	int ret, found = -ENODATA;

	ret = log_call(log, RPMEM_POOL_READ, bytes, sizeof(bytes), 0);
	if (ret)
		return ret;
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned char *at = bytes + (size_t)i * LOG_SLOT;

		ret = log_super_decode(at, &s);
		/* Refuse, even with one readable superblock: it may be old. */
		if (ret == -EPROTONOSUPPORT)
			return log_error(ret,
					 "%sthe log was written by another "
					 "release of librpmem_log: its format "
					 "is %u, this release has %u; use that "
					 "release",
					 log->io.name, rp_get32(at + 16),
					 LOG_VERSION);
		if (!ret && !is_other(log, &s) &&
		    s.ring > log->io.length - LOG_RING_AT)
			ret = -EBADMSG;
		intact += !ret;
		if (!ret && s.turn >= best.turn) {
			best = s;
			found = 0;
		} else if (ret && ret != -ENODATA && found) {
			found = ret;
		}
	}
	if (found == -ENODATA)
		return log_error(found,
				 "%sthe pool has no log; "
				 "rpmem_log_create() makes one",
				 log->io.name);
	if (found == -EMEDIUMTYPE)
		return log_error(
			found,
			"%sthe pool has a ring of calls of librpmem_rpc; use "
			"another pool, or write zeros over its first 8192 "
			"bytes if its calls are not needed any more",
			log->io.name);
	if (found)
		return log_error(
			found,
			"%sboth superblocks of the log are damaged, or "
			"the pool is shorter than when the log was "
			"created; restore it from a copy",
			log->io.name);
	if (is_other(log, &best))
		return log_error(
			-ENXIO,
			"%sthese are the bytes of log %u of %u: the pool was "
			"divided again; divide it into %u parts to use that "
			"log, or write zeros over the first 8192 bytes here if "
			"it is not needed any more",
			log->io.name, best.log, best.logs, best.logs);
	if (log->super.ring && log->super.id != best.id)
		return log_error(-ESTALE,
				 "%sthe log was created anew; close it, and "
				 "open it again",
				 log->io.name);
	log->super = best;
	log->super_alone = intact < 2;
	return 0;
}
