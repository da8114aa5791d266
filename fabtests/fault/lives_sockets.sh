#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_log over another base than tcp, with a few kills.
set -u
RP_BASE=sockets exec "${srcdir:-.}"/fabtests/fault/log_lives.sh 4
