// SPDX-License-Identifier: BSD-2-Clause
/*
 * A key-value server: each update once, whatever crashes.
 *
 *   cc -o kv_server kv_server.c -lrpmem_rpc -llmdb
 *   ./kv_server PATH PORT STORE [process]
 *
 * PATH.0, PATH.1, ... are the rings of the calls, one for each client. LMDB
 * keeps the values in the file STORE. process: be content with memory that
 * survives the processes only, and sync nothing.
 *
 * The rules of rpmem_rpc(3) that this server relies on:
 *
 * - A call is in the ring until rpmem_rpc_reply(), and the next server
 *   processes it otherwise. So mdb_txn_commit() is in front of
 *   rpmem_rpc_reply(), and a restart needs only STORE and the rings.
 * - The next server repeats at most RPMEM_RPC_AGAIN calls of a client, in their
 *   order, with again set. So the transaction of an update also stores the
 *   update's client, sequence and reply. An update whose sequence is not
 *   greater than the last stored one was committed: it gets its stored reply.
 * - A repeated read must not see later updates of its client, because calls
 *   are processed in their order. So the transaction of an update stores the
 *   value that it replaces, too.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lmdb.h>
#include <rpmem_rpc.h>

#include "kv.h"

#define MAP_BYTES (64ull << 30) /* address space reserved: limit of STORE */
#define RING	  (16u << 20)

/* An update that was committed. */
struct update {
	uint64_t sequence;
	uint64_t key;	   /* key of the update, big-endian */
	uint64_t replaced; /* 1: its old value is in the table `olds` */
	struct kv_reply reply;
};

/* Records are never deleted: each client keeps one id for ever. */
struct client {
	uint64_t updates; /* update i is the i-th modulo RPMEM_RPC_AGAIN */
	struct update last[RPMEM_RPC_AGAIN];
};

/* Key of the table `olds`: an old value that an update has replaced. */
struct old {
	unsigned char client[RPMEM_RPC_ID];
	uint64_t at; /* index of the update in client.last[] */
};

static MDB_env *env;
static MDB_dbi values, clients, olds;

/* End on an error: the next server repeats the calls that have no reply. */
static void check(const char *what, int ret)
{
	if (ret) {
		fprintf(stderr, "kv_server: %s: %s\n", what, mdb_strerror(ret));
		exit(1);
	}
}

static void open_store(const char *path, int sync)
{
	const unsigned int flags =
		MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | (sync ? 0 : MDB_NOSYNC);
	MDB_txn *txn;

	check("mdb_env_create", mdb_env_create(&env));
	check("mdb_env_set_mapsize", mdb_env_set_mapsize(env, MAP_BYTES));
	check("mdb_env_set_maxdbs", mdb_env_set_maxdbs(env, 3));
	check(path, mdb_env_open(env, path, flags, 0600));
	check(path, mdb_txn_begin(env, NULL, 0, &txn));
	check(path, mdb_dbi_open(txn, "values", MDB_CREATE, &values));
	check(path, mdb_dbi_open(txn, "clients", MDB_CREATE, &clients));
	check(path, mdb_dbi_open(txn, "olds", MDB_CREATE, &olds));
	check(path, mdb_txn_commit(txn));
}

/* Returns 1 and the value, or 0. */
static int get(MDB_txn *txn, MDB_dbi table, const void *key, size_t len,
	       MDB_val *value)
{
	MDB_val k = {len, (void *)key};
	const int ret = mdb_get(txn, table, &k, value);

	if (ret != MDB_NOTFOUND)
		check("mdb_get", ret);
	return !ret;
}

static void put(MDB_txn *txn, MDB_dbi table, const void *key, size_t key_len,
		const void *value, size_t len)
{
	MDB_val k = {key_len, (void *)key}, v = {len, (void *)value};

	check("mdb_put", mdb_put(txn, table, &k, &v, 0));
}

static void get_client(MDB_txn *txn, const unsigned char *id, struct client *c)
{
	MDB_val v;

	memset(c, 0, sizeof(*c));
	if (get(txn, clients, id, RPMEM_RPC_ID, &v) && v.mv_size == sizeof(*c))
		memcpy(c, v.mv_data, sizeof(*c));
}

/* Find the oldest update after the sequence: of the key, or of any (NULL). */
static const struct update *find(const struct client *c, uint64_t sequence,
				 const uint64_t *key)
{
	for (unsigned int i = 0; i < RPMEM_RPC_AGAIN; i++) {
		const struct update *u =
			&c->last[(c->updates + i) % RPMEM_RPC_AGAIN];

		if (u->sequence > sequence && (!key || u->key == *key))
			return u;
	}
	return NULL;
}

/* Store the sum, and return the length of the value. */
static size_t add(uint64_t number, const MDB_val *old, unsigned char *to,
		  uint64_t *sum)
{
	memset(to, 0, 8);
	if (old->mv_size)
		memcpy(to, old->mv_data, old->mv_size);
	memcpy(sum, to, 8);
	*sum += number;
	memcpy(to, sum, 8);
	return old->mv_size > 8 ? old->mv_size : 8;
}

/* Commit the update, and what its repetition needs, in one transaction. */
static void update(const struct rpmem_rpc_call *call, const struct kv_call *k,
		   struct kv_reply *reply)
{
	const uint64_t key = htobe64(k->key);
	unsigned char sum[KV_VALUE_MAX];
	const void *value = k + 1;
	MDB_val old = {0, NULL};
	const struct update *u;
	size_t len = k->len;
	struct client c;
	struct old at;
	MDB_txn *txn;
	int exists;

	check("begin", mdb_txn_begin(env, NULL, 0, &txn));
	get_client(txn, call->client, &c);
	u = find(&c, call->sequence - 1, NULL);
	if (u) {
		*reply = u->reply; /* committed already */
		mdb_txn_abort(txn);
		return;
	}
	exists = get(txn, values, &key, sizeof(key), &old);
	reply->status = k->type == KV_INSERT && exists ? EEXIST : 0;
	if (k->type == KV_ADD) {
		len = add(k->number, &old, sum, &reply->number);
		value = sum;
	}
	at.at = c.updates++ % RPMEM_RPC_AGAIN;
	c.last[at.at] = (struct update){
		.sequence = call->sequence,
		.key = key,
		.replaced = (uint64_t)exists,
		.reply = *reply,
	};
	memcpy(at.client, call->client, RPMEM_RPC_ID);
	if (exists)
		put(txn, olds, &at, sizeof(at), old.mv_data, old.mv_size);
	if (!reply->status)
		put(txn, values, &key, sizeof(key), value, len);
	put(txn, clients, call->client, RPMEM_RPC_ID, &c, sizeof(c));
	check("commit", mdb_txn_commit(txn));
}

/* Read a key's value before later updates of this client. Returns 1 or 0. */
static int see(MDB_txn *txn, const struct rpmem_rpc_call *call,
	       const struct client *c, uint64_t key, MDB_val *v)
{
	const struct update *u = find(c, call->sequence, &key);
	struct old at;

	if (!u)
		return 1;
	memcpy(at.client, call->client, RPMEM_RPC_ID);
	at.at = (uint64_t)(u - c->last);
	return u->replaced && get(txn, olds, &at, sizeof(at), v);
}

/* A get is a scan of one key. */
static void look_up(const struct rpmem_rpc_call *call, const struct kv_call *k,
		    struct kv_reply *r, unsigned char *reply, size_t *len)
{
	const size_t room =
		call->reply_max < RING / 8 ? call->reply_max : RING / 8;
	const uint64_t most = k->type == KV_GET ? 1 : k->number;
	uint64_t key = htobe64(k->key);
	MDB_val at = {sizeof(key), &key}, v;
	struct client c;
	MDB_cursor *cur;
	MDB_txn *txn;
	int ret;

	check("begin", mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
	get_client(txn, call->client, &c);
	check("cursor", mdb_cursor_open(txn, values, &cur));
	ret = mdb_cursor_get(cur, &at, &v,
			     k->type == KV_GET ? MDB_SET_KEY : MDB_SET_RANGE);
	for (r->count = 0; !ret && r->count < most;) {
		memcpy(&key, at.mv_data, sizeof(key));
		if (see(txn, call, &c, key, &v)) {
			const struct kv_pair pair = {be64toh(key), v.mv_size};

			if (*len + sizeof(pair) + v.mv_size > room)
				break;
			memcpy(reply + *len, &pair, sizeof(pair));
			*len += sizeof(pair);
			memcpy(reply + *len, v.mv_data, v.mv_size);
			*len += v.mv_size;
			r->count++;
		}
		ret = k->type == KV_GET
			      ? MDB_NOTFOUND
			      : mdb_cursor_get(cur, &at, &v, MDB_NEXT);
	}
	if (ret != MDB_NOTFOUND)
		check("scan", ret);
	mdb_cursor_close(cur);
	mdb_txn_abort(txn);
	r->status = k->type == KV_GET && !r->count ? ENOENT : 0;
}

/* Process calls until the disk fails. */
static void serve(struct rpmem_rpc_server *srv)
{
	static unsigned char reply[RING / 8]; /* the longest reply */
	struct rpmem_rpc_call *call;
	size_t len;

	while (rpmem_rpc_next(srv, &call, -1) > 0) {
		const struct kv_call *k = call->buf;
		struct kv_reply r = {0};

		len = call->reply_max < sizeof(r) ? 0 : sizeof(r);
		if (!len || call->len < sizeof(*k) || k->type > KV_ADD ||
		    k->len > KV_VALUE_MAX || call->len < sizeof(*k) + k->len)
			r.status = EINVAL;
		else if (k->type <= KV_SCAN)
			look_up(call, k, &r, reply, &len);
		else
			update(call, k, &r);
		memcpy(reply, &r, sizeof(r));
		if (rpmem_rpc_reply(srv, call, reply, len))
			break;
	}
}

int main(int argc, char **argv)
{
	struct rpmem_rpc_server_attr attr = {
		.size = sizeof(attr),
		.clients = 4,
		.ring = RING,
	};
	struct rpmem_rpc_server *srv;

	if (argc != 4 && (argc != 5 || strcmp(argv[4], "process")))
		return 2;
	attr.port = (uint16_t)atoi(argv[2]);
	attr.required = argc == 5 ? RPMEM_POOL_PROCESS : RPMEM_POOL_POWER;
	/* -EBUSY stops a second server: STORE has no lock. */
	if (rpmem_rpc_listen(&srv, argv[1], &attr)) {
		fprintf(stderr, "kv_server: %s\n", rpmem_rpc_error());
		return 1;
	}
	open_store(argv[3], attr.required == RPMEM_POOL_POWER);
	printf("port %u\n", rpmem_rpc_port(srv));
	fflush(stdout);
	serve(srv);
	fprintf(stderr, "kv_server: %s\n", rpmem_rpc_error());
	rpmem_rpc_server_close(srv);
	return 1;
}
