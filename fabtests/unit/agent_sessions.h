/* SPDX-License-Identifier: BSD-2-Clause */
/* An agent with two regions (agent_bed.h), and its replies to HELLOs. */
#ifndef RP_TEST_AGENT_SESSIONS_H
#define RP_TEST_AGENT_SESSIONS_H

#include "agent_bed.h"

extern struct bed g;
extern struct bed_region file, dax;
extern struct bed_region *const all[2];

void start(const struct rp_agent_attr *attr);
void stop(void);
/* The agent must refuse a request with this HELLO at once. */
void expect_refused(const struct rp_wire_hello *m, enum rp_status st);
struct bed_peer expect_accepted(const struct rp_wire_hello *m);
/* Connect with a key. Returns the status, which a refusal delays. */
enum rp_status show_key(uint64_t key, bool *at_once);
/* Expect the late reply to a wrong key, then the end of the connection. */
void wrong_key(struct bed_peer *p, bool query);
uint64_t send_query(struct bed_peer *p, uint64_t key);

#endif
