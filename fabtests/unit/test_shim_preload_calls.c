// SPDX-License-Identifier: BSD-2-Clause
/* The preload's calls of a program, on functions that do nothing or fail. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "verbs/preload/preload.h"

static struct verbs_context device = {
	.sz = sizeof(device),
};
static struct ibv_qp qp;
static uint32_t given_sge; /* max_send_sge that the device has got */
static bool device_fails;
static int destroyed, modified, lookups;
static struct rp_pre_qp *found; /* if not NULL: the queue pair of each lookup */

/* --- libibverbs --- */

static struct ibv_context *open_device(struct ibv_device *d)
{
	(void)d;
	return &device.context;
}

static int destroy_qp(struct ibv_qp *q)
{
	(void)q;
	destroyed++;
	return 0;
}

static int modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
	(void)q;
	(void)attr;
	(void)mask;
	modified++;
	return 0;
}

static int query_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init)
{
	(void)q;
	(void)mask;
	*attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	*init = (struct ibv_qp_init_attr){.sq_sig_all = 0};
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     int access)
{
	static struct ibv_mr mr;

	(void)pd;
	(void)addr;
	(void)len;
	(void)access;
	return &mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	(void)wc;
	return 0;
}

static void nothing(void)
{
}

void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name)
{
	static const struct {
		const char *name;
		void (*call)(void);
	} calls[] = {
		{"ibv_open_device", (void (*)(void))open_device},
		{"ibv_destroy_qp", (void (*)(void))destroy_qp},
		{"ibv_modify_qp", (void (*)(void))modify_qp},
		{"ibv_query_qp", (void (*)(void))query_qp},
		{"ibv_reg_mr", (void (*)(void))reg_mr},
		{"ibv_dereg_mr", (void (*)(void))dereg_mr},
	};
	void (*f)(void) = nothing;
	void *p;

	(void)handle;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(name, calls[i].name))
			f = calls[i].call;
	memcpy(&p, &f, sizeof(p));
	return p;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	static struct ibv_pd pd;

	pd.context = c;
	return &pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	(void)c;
	attr->max_cqe = 64;
	return 0;
}

static struct ibv_qp *create_qp(struct ibv_context *c,
				struct ibv_qp_init_attr_ex *attr)
{
	(void)c;
	given_sge = attr->cap.max_send_sge;
	return device_fails ? NULL : &qp;
}

static int query_device(struct ibv_context *c,
			const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t size)
{
	(void)c;
	(void)input;
	(void)attr;
	(void)size;
	return 0;
}

/* --- the shim --- */

unsigned int __wrap_rp_device_native(struct ibv_pd *pd);
unsigned int __wrap_rp_device_native(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

bool __wrap_rp_builders_supported(struct ibv_pd *pd, uint64_t ops);
bool __wrap_rp_builders_supported(struct ibv_pd *pd, uint64_t ops)
{
	(void)pd;
	(void)ops;
	return true;
}

/* The lookup of a queue pair takes the lock of the preload's thread. */
struct rp_pre_qp *__real_rp_pre_qp_find(struct ibv_qp *q);
struct rp_pre_qp *__wrap_rp_pre_qp_find(struct ibv_qp *q);
struct rp_pre_qp *__wrap_rp_pre_qp_find(struct ibv_qp *q)
{
	lookups++;
	return found ? found : __real_rp_pre_qp_find(q);
}

/* The queue pair of a test is in no list. */
void __wrap_rp_pre_qp_del(struct rp_pre_qp *r);
void __wrap_rp_pre_qp_del(struct rp_pre_qp *r)
{
	(void)r;
}

/* A thread for which stays_locked is set keeps the lock of the devices. */
static __thread bool stays_locked;
static sem_t locked, may_unlock;

int __real_pthread_rwlock_unlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	if (stays_locked) {
		sem_post(&locked);
		sem_wait(&may_unlock);
	}
	return __real_pthread_rwlock_unlock(lock);
}

static void calls_start(void)
{
	device.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	device.create_qp_ex = create_qp;
	device.context.ops.poll_cq = poll_cq;
	device.query_device_ex = query_device;
	device_fails = false;
	destroyed = modified = lookups = 0;
	cr_assert_eq(ibv_open_device(NULL), &device.context);
	cr_assert_neq(device.create_qp_ex, create_qp);
}

TestSuite(shim_preload_calls, .init = calls_start);

/* The device needs one SGE for the shim's READs; the program asked for none. */
Test(shim_preload_calls, failed_creation_leaves_the_attributes_as_they_were)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	};
	const uint64_t ops = RP_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE;

	for (int i = 0; i < 2; i++) {
		device_fails = i;
		attr.send_ops_flags = ops;
		given_sge = 0;
		/* This queue pair has no completion queue of the preload. */
		cr_assert_null(device.create_qp_ex(&device.context, &attr));
		cr_assert_eq(given_sge, 1u);
		cr_assert_eq(attr.cap.max_send_sge, 0u, "%d", i);
		cr_assert_eq(attr.send_ops_flags, ops);
	}
	cr_assert_eq(destroyed, 1);
}

static size_t free_slots(const struct rpmem_cq *cq)
{
	size_t n = 0;

	for (const struct rp_slot *s = cq->free; s; s = s->next)
		n++;
	return n;
}

/* A device drops the work requests of a reset or destroyed queue pair. */
Test(shim_preload_calls, slots_of_dropped_work_requests_are_freed)
{
	static struct ibv_cq cq = {.context = &device.context, .cqe = 8};
	struct rp_pre_cq c = {.cq = &cq, .lock = PTHREAD_MUTEX_INITIALIZER};
	const struct rpmem_qp_attr how = {.access = 0};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct rpmem_cq *shim = rpmem_attach_cq(&cq);
	struct ibv_wc wc;

	qp = (struct ibv_qp){.context = &device.context,
			     .send_cq = &cq,
			     .qp_type = IBV_QPT_RC,
			     .qp_num = 5};
	atomic_store(&c.shim, shim);
	found = calloc(1, sizeof(*found));
	found->qp = &qp;
	found->send_cq = &c;
	found->fd = -1;
	found->shim = rpmem_attach_qp(&qp, shim, &how);
	cr_assert_not_null(found->shim);
	cr_assert_not_null(rp_slot_new(rp_qp_of(found->shim), NULL, 0));
	cr_assert_eq(ibv_modify_qp(&qp, &reset, IBV_QP_STATE), 0);
	cr_assert_eq(free_slots(shim), 7u);
	cr_assert_eq(rpmem_poll_cq(shim, 1, &wc), 0);
	cr_assert_eq(free_slots(shim), 8u);
	cr_assert_not_null(rp_slot_new(rp_qp_of(found->shim), NULL, 0));
	cr_assert_eq(ibv_destroy_qp(&qp), 0);
	cr_assert_eq(destroyed, 1);
	cr_assert_eq(free_slots(shim), 7u);
	cr_assert_eq(rpmem_poll_cq(shim, 1, &wc), 0);
	cr_assert_eq(free_slots(shim), 8u);
	cr_assert_eq(rpmem_detach_cq(shim), 0);
}

/*
 * The agent's thread fails a queue pair under its lock, which the preload's
 * thread takes under its own.
 */
Test(shim_preload_calls, failing_a_queue_pair_takes_no_lock_of_the_preload)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	cr_assert_eq(ibv_modify_qp(&qp, &attr, IBV_QP_STATE), 0);
	cr_assert_eq(modified, 1);
	cr_assert_eq(lookups, 0);
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(ibv_modify_qp(&qp, &attr, IBV_QP_STATE), 0);
	cr_assert_eq(modified, 2);
	cr_assert_eq(lookups, 1);
}

static void *find_device(void *arg)
{
	stays_locked = true;
	rp_pre_ctx_find(&device.context);
	return arg;
}

Test(shim_preload_calls, forked_child_opens_a_device_while_the_parent_polls,
     .timeout = 60)
{
	pthread_t poller;
	int status;
	pid_t pid;

	sem_init(&locked, 0, 0);
	sem_init(&may_unlock, 0, 0);
	pthread_create(&poller, NULL, find_device, NULL);
	sem_wait(&locked);
	pid = fork();
	if (!pid) {
		alarm(20);
		_exit(!ibv_open_device(NULL));
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	sem_post(&may_unlock);
	pthread_join(poller, NULL);
	cr_assert_eq(status, 0, "%#x", status);
}
