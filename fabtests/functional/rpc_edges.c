// SPDX-License-Identifier: BSD-2-Clause
/*
 * Edges of librpmem_rpc, for rpc.sh.
 *
 *   rpc_edges refuse PATH             servers that are refused make no file
 *   rpc_edges away PATH               the server ends while a call waits
 *   rpc_edges method PATH METHOD SECRET OTHER
 *                                     short and long calls, made durable by
 *                                     that method; the file OTHER has another
 *                                     secret
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rpmem_rpc.h>

static int failures;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	printf("FAIL: %s: %s\n", what, rpmem_rpc_error());
	failures = 1;
}

static void expect_open_refused(const char *path, unsigned int clients,
				int expected, const char *text)
{
	const struct rpmem_rpc_server_attr attr = {
		.size = sizeof(attr),
		.clients = clients,
		.required = RPMEM_POOL_NONE,
		.ring = 8192,
	};
	struct rpmem_rpc_server *srv = NULL;
	const int ret = rpmem_rpc_listen(&srv, path, &attr);

	check(ret == expected, path);
	check(strstr(rpmem_rpc_error(), text) != NULL, text);
	if (!ret)
		rpmem_rpc_server_close(srv);
}

static int refuse(const char *path)
{
	struct rpmem_rpc *rpc;
	char name[512];

	expect_open_refused("", 1, -EINVAL, "the name of the pools");
	snprintf(name, sizeof(name), "%s/", path);
	expect_open_refused(name, 1, -EINVAL, "the name of the pools");
	snprintf(name, sizeof(name), "%s-none/calls", path);
	expect_open_refused(name, 1, -ENOENT, "-none/");
	snprintf(name, sizeof(name), "%s.6", path);
	close(open(name, O_CREAT | O_WRONLY, 0600));
	expect_open_refused(path, 3, -EINVAL,
			    "files of 7 clients, and attr.clients is 3");
	unlink(name);
	snprintf(name, sizeof(name), "%s.0", path);
	check(access(name, F_OK) != 0, "a file was made");
	check(rpmem_rpc_connect(&rpc, "h:calls,h2:calls;k=1", NULL) == -EINVAL,
	      "a group of pools");
	check(strstr(rpmem_rpc_error(), "is a group of pools") != NULL,
	      "the error of a group");
	return failures;
}

/*
 * Serve calls, and reply with the first bytes of each. Without a secret never
 * reply.
 */
static int serve(const char *path, const char *secret, int to)
{
	const struct rpmem_rpc_server_attr attr = {
		.size = sizeof(attr),
		.required = RPMEM_POOL_NONE,
		.clients = 2,
		.secret_file = secret,
	};
	struct rpmem_rpc_server *srv;
	struct rpmem_rpc_call *call;
	uint16_t port;
	const int ret = rpmem_rpc_listen(&srv, path, &attr);

	if (ret) {
		printf("%s\n", rpmem_rpc_error());
		fflush(stdout);
		return ret == -EOPNOTSUPP ? 77 : 1;
	}
	port = rpmem_rpc_port(srv);
	if (write(to, &port, sizeof(port)) != sizeof(port))
		return 1;
	while (rpmem_rpc_next(srv, &call, -1) > 0)
		if (secret &&
		    rpmem_rpc_reply(srv, call, call->buf, sizeof(uint64_t)))
			return 1;
	return 1;
}

/*
 * Start a server process. Returns its pid, and its address in where, or -(exit
 * status).
 */
static pid_t start(const char *path, const char *secret, char where[64])
{
	const char *name = strrchr(path, '/');
	uint16_t port;
	ssize_t n;
	int fds[2], status = 0;
	pid_t pid;

	if (pipe(fds))
		return -1;
	pid = fork();
	if (!pid)
		_exit(serve(path, secret, fds[1]));
	close(fds[1]);
	n = read(fds[0], &port, sizeof(port));
	close(fds[0]);
	if (n == sizeof(port)) {
		snprintf(where, 64, "127.0.0.1:%u:%s", port,
			 name ? name + 1 : path);
		return pid;
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -1;
}

/*
 * A client waits for a reply while the server ends: check the error, its text
 * and the pending calls.
 */
static void wait_away(const char *where, pid_t server)
{
	const struct rpmem_rpc_attr attr = {
		.size = sizeof(attr),
		.required = RPMEM_POOL_NONE,
		.timeout = 1,
	};
	struct rpmem_rpc_op op = {
		.buf = "x", .len = 1, .flags = RPMEM_RPC_NOTIFY};
	struct rpmem_rpc_op *done[1];
	struct rpmem_rpc *rpc;

	if (rpmem_rpc_connect(&rpc, where, &attr)) {
		check(0, "connect");
		return;
	}
	check(rpmem_rpc_poll(rpc, done, 1, -1) == 0, "poll without a call");
	check(rpmem_rpc_submit(rpc, &op) == 0, "submit");
	check(rpmem_rpc_poll(rpc, done, 1, -1) == 1 &&
		      op.state == RPMEM_RPC_DURABLE,
	      "acknowledged");
	kill(server, SIGKILL);
	check(rpmem_rpc_poll(rpc, done, 1, -1) == 1 &&
		      op.state == RPMEM_RPC_DONE && op.result == -ETIMEDOUT,
	      "an acknowledged call fails when the server is away");
	check(rpmem_rpc_poll(rpc, done, 1, -1) == -ETIMEDOUT, "poll");
	check(!strstr(op.error, "fi_rpmemd") &&
		      !strstr(rpmem_rpc_error(), "fi_rpmemd"),
	      "the peer is no fi_rpmemd");
	rpmem_rpc_close(rpc, 0);
	check(rpmem_rpc_connect(&rpc, where, &attr) == -ECONNREFUSED,
	      "connect to nobody");
	check(strstr(rpmem_rpc_error(), "start the server") != NULL, "text");
}

static int server_goes_away(const char *path)
{
	char where[64];
	const pid_t pid = start(path, NULL, where);

	if (pid < 0)
		return -pid;
	wait_away(where, pid);
	waitpid(pid, NULL, 0);
	return failures;
}

/*
 * Make calls whose bytes travel inside the request (up to 4032), and before it.
 */
static void call_all(struct rpmem_rpc *rpc)
{
	static const size_t lengths[] = {8, 4032, 4033, 60000};
	static unsigned char bytes[60000];

	for (uint64_t i = 0; i < 64; i++) {
		uint64_t reply = 0;
		size_t len = sizeof(reply);

		memcpy(bytes, &i, sizeof(i));
		check(rpmem_rpc_call(rpc, bytes, lengths[i % 4], &reply,
				     &len) == 0 &&
			      len == sizeof(reply) && reply == i,
		      "call");
	}
}

static int method(const char *path, const char *expected, const char *secret,
		  const char *other)
{
	struct rpmem_rpc_attr attr = {
		.size = sizeof(attr),
		.required = RPMEM_POOL_NONE,
		.secret_file = other,
	};
	const bool by_agent = !strncmp(expected, "agent", 5);
	struct rpmem_rpc_info info = {.size = sizeof(info)};
	struct rpmem_rpc *rpc;
	char where[64];
	const pid_t pid = start(path, secret, where);

	if (pid < 0)
		return -pid;
	check(rpmem_rpc_connect(&rpc, where, &attr) == -EACCES, "other secret");
	attr.secret_file = secret;
	if (rpmem_rpc_connect(&rpc, where, &attr)) {
		check(0, "connect");
	} else {
		check(rpmem_rpc_query(rpc, &info) == 0 &&
			      !strcmp(info.method, expected),
		      info.method ? info.method : "query");
		check(info.variant_max == (by_agent ? 4032 : 0) &&
			      info.variant == (by_agent ? RPMEM_RPC_S_RFLUSH
							: RPMEM_RPC_WFLUSH) &&
			      info.variant_long == (by_agent
							    ? RPMEM_RPC_W_RFLUSH
							    : RPMEM_RPC_WFLUSH),
		      "variants");
		call_all(rpc);
		rpmem_rpc_close(rpc, 1);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return failures;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "refuse"))
		return refuse(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "away"))
		return server_goes_away(argv[2]);
	if (argc == 6 && !strcmp(argv[1], "method"))
		return method(argv[2], argv[3], argv[4], argv[5]);
	return 2;
}
