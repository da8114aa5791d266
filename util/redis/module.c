// SPDX-License-Identifier: BSD-2-Clause
/*
 * A module of Redis 7.0: restores the append-only files from a remote log,
 * keeps room in the log, and reports its state. preload.c appends to the log.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/pool_class.h"
#include "util/redis/mirror.h"

#define OK     0
#define FAILED 1

/* The only version whose libc calls preload.c knows: major, minor. */
#define SUPPORTED 0x0700

/* Bytes after the base file that justify a rewrite. */
#define ROOM_LEAST 65536u

/* Constants of Redis's module interface, version 1. */
struct module_event {
	uint64_t id, version;
};
#define EVENT_TURN	 15u /* turn of the event loop */
#define EVENT_CONFIG	 16u
#define TURN_AFTER_SLEEP 1u

static int (*get_api)(const char *, void *);
static void *(*call)(void *ctx, const char *, const char *, ...);
static void *(*reply_element)(void *, size_t);
static const char *(*reply_text)(void *, size_t *);
static void (*free_reply)(void *);
static const char *(*string_text)(const void *, size_t *);
static void (*log_line)(void *ctx, const char *, const char *, ...);
static long long (*milliseconds)(void);
static void (*set_attributes)(void *ctx, const char *, int, int);
static int (*subscribe)(void *ctx, struct module_event,
			void (*)(void *ctx, struct module_event, uint64_t,
				 void *));
static int (*server_version)(void);
static int (*register_info)(void *ctx, void (*)(void *, int));
static int (*add_section)(void *, const char *);
static int (*add_number)(void *, const char *, unsigned long long);

static const struct {
	const char *name;
	void *to;
} api[] = {
	{"RedisModule_Call", &call},
	{"RedisModule_CallReplyArrayElement", &reply_element},
	{"RedisModule_CallReplyStringPtr", &reply_text},
	{"RedisModule_FreeCallReply", &free_reply},
	{"RedisModule_StringPtrLen", &string_text},
	{"RedisModule_Log", &log_line},
	{"RedisModule_Milliseconds", &milliseconds},
	{"RedisModule_SetModuleAttribs", &set_attributes},
	{"RedisModule_SubscribeToServerEvent", &subscribe},
	{"RedisModule_GetServerVersion", &server_version},
	{"RedisModule_RegisterInfoFunc", &register_info},
	{"RedisModule_InfoAddSection", &add_section},
	{"RedisModule_InfoAddFieldULongLong", &add_number},
};

static bool paused;

/* Copy the value of a Redis parameter. */
static void get_config(void *ctx, const char *name, char *to, size_t size)
{
	void *reply = call(ctx, "CONFIG", "cc", "GET", name);
	void *value = reply ? reply_element(reply, 1) : NULL;
	const char *text = NULL;
	size_t n = 0;

	if (value)
		text = reply_text(value, &n);
	snprintf(to, size, "%.*s", text ? (int)n : 0, text ? text : "");
	if (reply)
		free_reply(reply);
}

/* Whether Redis waits for the log before it replies. */
static bool check_config(void *ctx)
{
	static const struct {
		const char *name, *value;
	} need[] = {{"appendonly", "yes"},
		    {"appendfsync", "always"},
		    {"no-appendfsync-on-rewrite", "no"}};
	bool good = true;
	char is[256];

	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		get_config(ctx, need[i].name, is, sizeof(is));
		if (!strcmp(is, need[i].value))
			continue;
		log_line(ctx, "warning",
			 "%s is '%s': writes are acknowledged before they are "
			 "durable. Set '%s %s'.",
			 need[i].name, is, need[i].name, need[i].value);
		good = false;
	}
	return good;
}

static void run(void *ctx, const char *command, const char *a, const char *b,
		const char *c)
{
	void *reply =
		a ? call(ctx, command, "ccc", a, b, c) : call(ctx, command, "");

	if (reply)
		free_reply(reply);
}

/* Request a rewrite, if worth it; after each one wait twice as long. */
static void request_rewrite(void *ctx, const struct mirror_space *s, bool worth,
			    bool full)
{
	static long long last, interval = 1000;
	const long long now = milliseconds();

	if (!worth)
		interval = 1000;
	if (!worth || now - last < interval || s->uploaded)
		return;
	last = now;
	interval *= 2;
	if (full && s->used > s->files + s->files / 16 + ROOM_LEAST) {
		const int ret = rp_mirror_clean();

		if (ret)
			log_line(ctx, "warning", "the log is not cleaned: %s",
				 strerror(-ret));
	}
	run(ctx, "BGREWRITEAOF", NULL, NULL, NULL);
}

/*
 * A rewrite needs as much room as the files that it replaces, so that the files
 * may have less than half of the ring. While they have more, clients that write
 * are paused.
 */
static void keep_room(void *ctx)
{
	struct mirror_space s;
	uint64_t most, used, spare;
	bool full;

	if (rp_mirror_query(&s))
		return;
	most = s.capacity / 2 - s.capacity / 16;
	used = s.used > s.uploaded ? s.used - s.uploaded : 0;
	spare = most > s.base ? most - s.base : 0;
	full = used > most;
	request_rewrite(ctx, &s, used > s.base + spare / 2 + ROOM_LEAST, full);
	if (full)
		run(ctx, "CLIENT", "PAUSE", "100", "WRITE");
	if (full && !paused)
		log_line(ctx, "warning",
			 "the log is nearly half full: clients that write wait "
			 "for a rewrite. If they wait long, the data set needs "
			 "a larger pool: rpmem_redis(7).");
	paused = full;
}

static void on_event(void *ctx, struct module_event event, uint64_t subevent,
		     void *data)
{
	(void)data;
	if (event.id == EVENT_CONFIG)
		check_config(ctx);
	else if (subevent == TURN_AFTER_SLEEP)
		keep_room(ctx);
}

static void on_info(void *info, int crashed)
{
	struct mirror_space s;

	if (crashed || rp_mirror_query(&s))
		return;
	add_section(info, "log");
	add_number(info, "capacity", s.capacity);
	add_number(info, "used", s.used);
	add_number(info, "base", s.base);
	add_number(info, "uploaded", s.uploaded);
	add_number(info, "appends", s.writes);
	add_number(info, "paused", paused);
	add_number(info, "survives_power_cut", s.reached == RPMEM_POOL_POWER);
}

/* Whether the dynamic linker also preloaded this object. */
static bool is_preloaded(void)
{
	Dl_info called, here;

	return dladdr(dlsym(RTLD_DEFAULT, "fdatasync"), &called) &&
	       dladdr(&paused, &here) && called.dli_fbase == here.dli_fbase;
}

/* Read "NAME VALUE"; false: unknown parameter. */
static bool set_parameter(struct rpmem_log_attr *attr, bool *create,
			  const char *name, const char *value)
{
	const bool yes = !strcasecmp(value, "yes");

	if (!strcasecmp(name, "secret"))
		attr->secret_file = value;
	else if (!strcasecmp(name, "timeout"))
		attr->timeout = (unsigned int)strtoul(value, NULL, 10);
	else if (!strcasecmp(name, "take"))
		attr->take = yes;
	else if (!strcasecmp(name, "create"))
		*create = yes;
	else if (!strcasecmp(name, "class"))
		return rp_pool_class_parse(value, &attr->required);
	else
		return false;
	return true;
}

static int open_log(void *ctx, void **argv, int argc)
{
	struct rpmem_log_attr attr = {.size = sizeof(attr)};
	const char *where = string_text(argv[0], NULL);
	bool create = false;
	char folder[256];
	int ret = 0;

	for (int i = 1; i < argc; i += 2)
		if (i + 1 == argc ||
		    !set_parameter(&attr, &create, string_text(argv[i], NULL),
				   string_text(argv[i + 1], NULL))) {
			log_line(ctx, "warning",
				 "unknown parameter '%s'; rpmem_redis(7) lists "
				 "them",
				 string_text(argv[i], NULL));
			return FAILED;
		}
	get_config(ctx, "appenddirname", folder, sizeof(folder));
	if (create)
		ret = rpmem_log_create(where, &attr);
	if (!ret || ret == -EEXIST)
		ret = rp_mirror_open(folder, where, &attr);
	if (!ret)
		ret = rp_preload_start();
	if (!ret)
		return OK;
	/*
	 * rpmem_log_error() may be about an earlier call: `create yes` for a
	 * log that exists.
	 */
	log_line(ctx, "warning", "the log %s does not open: %s: %s", where,
		 strerror(-ret),
		 *rp_mirror_failure ? rp_mirror_failure : rpmem_log_error());
	return FAILED;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc);
int RedisModule_OnLoad(void *ctx, void **argv, int argc)
{
	memcpy(&get_api, ctx, sizeof(get_api));
	for (size_t i = 0; i < sizeof(api) / sizeof(api[0]); i++)
		if (get_api(api[i].name, api[i].to))
			return FAILED;
	set_attributes(ctx, "rpmem", 1, 1);
	if (server_version() >> 8 != SUPPORTED) {
		log_line(ctx, "warning",
			 "rpmem_redis.so knows how Redis 7.0 makes its files "
			 "durable, not this version: use Redis 7.0.");
		return FAILED;
	}
	if (!is_preloaded()) {
		log_line(ctx, "warning",
			 "rpmem_redis.so is loaded as a module alone: it would "
			 "make nothing durable. Start Redis with "
			 "LD_PRELOAD=/path/to/rpmem_redis.so too.");
		return FAILED;
	}
	if (argc < 1) {
		log_line(ctx, "warning",
			 "no log: loadmodule rpmem_redis.so HOST[:PORT]:POOL");
		return FAILED;
	}
	if (!check_config(ctx) || open_log(ctx, argv, argc))
		return FAILED;
	if (subscribe(ctx, (struct module_event){EVENT_TURN, 1}, on_event) ||
	    subscribe(ctx, (struct module_event){EVENT_CONFIG, 1}, on_event))
		return FAILED;
	return register_info(ctx, on_info);
}

/* Refuse: Redis would acknowledge writes that are not durable. */
int RedisModule_OnUnload(void *ctx);
int RedisModule_OnUnload(void *ctx)
{
	log_line(ctx, "warning", "rpmem_redis.so stays loaded: restart Redis");
	return FAILED;
}
