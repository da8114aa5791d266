// SPDX-License-Identifier: BSD-2-Clause
/*
 * A Redis module for redis_log.py. It counts the turns of the event loop in
 * which replies left before a module could have made the replication stream
 * durable. A module's last chance in a turn is the event BEFORE_SLEEP; replies
 * have left by the next AFTER_SLEEP.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct module_event {
	uint64_t id, version;
};

static void *(*call)(void *ctx, const char *, const char *, ...);
static const char *(*reply_text)(void *, size_t *);
static void (*free_reply)(void *);
static int (*reply_number)(void *ctx, long long);
static long long covered, early;

/* Number of bytes in the replication stream so far. */
static long long get_offset(void *ctx)
{
	static const char field[] = "master_repl_offset:";
	void *reply = call(ctx, "INFO", "c", "replication");
	size_t n;
	const char *text = reply_text(reply, &n);
	const char *at = memmem(text, n, field, sizeof(field) - 1);
	const long long offset = at ? atoll(at + sizeof(field) - 1) : -1;

	free_reply(reply);
	return offset;
}

static void on_turn(void *ctx, struct module_event event, uint64_t after,
		    void *data)
{
	const long long offset = get_offset(ctx);

	(void)event;
	(void)data;
	if (!after)
		covered = offset;
	else if (offset != covered)
		early++;
}

static int report_early(void *ctx, void **argv, int argc)
{
	(void)argv;
	(void)argc;
	return reply_number(ctx, early);
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc);
int RedisModule_OnLoad(void *ctx, void **argv, int argc)
{
	void (*set_attributes)(void *, const char *, int, int);
	int (*subscribe)(
		void *, struct module_event,
		void (*)(void *, struct module_event, uint64_t, void *));
	int (*create)(void *, const char *, int (*)(void *, void **, int),
		      const char *, int, int, int);
	int (*get_api)(const char *, void *);

	(void)argv;
	(void)argc;
	memcpy(&get_api, ctx, sizeof(get_api));
	get_api("RedisModule_SetModuleAttribs", &set_attributes);
	get_api("RedisModule_SubscribeToServerEvent", &subscribe);
	get_api("RedisModule_CreateCommand", &create);
	get_api("RedisModule_Call", &call);
	get_api("RedisModule_CallReplyStringPtr", &reply_text);
	get_api("RedisModule_FreeCallReply", &free_reply);
	get_api("RedisModule_ReplyWithLongLong", &reply_number);
	set_attributes(ctx, "hook", 1, 1);
	create(ctx, "hook.early", report_early, "readonly", 0, 0, 0);
	return subscribe(ctx, (struct module_event){15, 1}, on_turn);
}
