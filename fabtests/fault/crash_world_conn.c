// SPDX-License-Identifier: BSD-2-Clause
/* Connection events of programs with connected endpoints. */
#include "crash_world_priv.h"

void look_at_events(unsigned int machine)
{
	enum node_event e;

	while ((e = node_event(&w.node[machine])) != NODE_NOTHING) {
		if (machine == TARGET)
			continue;
		w.lost[machine] = e == NODE_OVER;
		if (e == NODE_OVER)
			say("%s sees that its connection is over",
			    machine_name(machine));
	}
}

/*
 * Close initiator i's endpoint and connect a new one, whose commits cover no
 * earlier write.
 */
void connect_again(unsigned int i)
{
	say("%s connects again", machine_name(i));
	oracle_connects(&w.o, i);
	node_connect(&w.node[i], w.target_name);
	run(TARGET);
	run(i);
}
