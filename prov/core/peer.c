// SPDX-License-Identifier: BSD-2-Clause
#include "core/peer.h"
