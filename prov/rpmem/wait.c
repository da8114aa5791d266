// SPDX-License-Identifier: BSD-2-Clause
/* The epoll descriptors that programs sleep on, and their clock in ms. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "rpmem/os_services.h"
#include "rpmem/rpmem.h"

int64_t rp_wait_now(void)
{
	return (int64_t)(rp_host_now() / 1000000);
}

int rp_wait_watch(int epfd, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

int rp_wait_open(struct rp_dom *dom, int base_fd, int *ev_fd, int *epfd)
{
	int ret;

	atomic_store(&dom->may_sleep, true);
	*ev_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	*epfd = epoll_create1(EPOLL_CLOEXEC);
	if (*ev_fd < 0 || *epfd < 0)
		return -errno;
	ret = rp_wait_watch(*epfd, base_fd);
	if (!ret)
		ret = rp_wait_watch(*epfd, *ev_fd);
	/* Without a progress thread, which writes ev_fd, watch connections. */
	if (!ret && !dom->auto_progress)
		ret = rp_wait_watch(*epfd, dom->wake_fd);
	return ret;
}
