# Harnesses for libFuzzer. clang builds them, and fuzz.sh runs them.
TESTS += fabtests/fuzz/fuzz.sh
EXTRA_DIST += fabtests/fuzz/fuzz.sh fabtests/fuzz/seeds.py \
	fabtests/fuzz/corpus fabtests/fuzz/fuzz.h \
	fabtests/fuzz/agent_world.c fabtests/fuzz/agent_world.h \
	fabtests/fuzz/fuzz_agent.c fabtests/fuzz/fuzz_initiator.c \
	fabtests/fuzz/fuzz_log.c fabtests/fuzz/fuzz_ring.c \
	fabtests/fuzz/fuzz_rpc_ring.c fabtests/fuzz/fuzz_tcp.c \
	fabtests/fuzz/fuzz_pool.c fabtests/fuzz/fuzz_setup.c \
	fabtests/fuzz/fuzz_setup_client.c fabtests/fuzz/fuzz_wire.c \
	fabtests/fuzz/fuzz_wire_desc.c
