// SPDX-License-Identifier: MIT OR GPL-2.0
/* The functions of the Rust library that is linked into the same module. */
#include "obento.h"

#define OB_DECLARATION(result, name, arguments) result ob_##name arguments;
OB_CALLS(OB_DECLARATION)
#define OB_ENTRY(result, name, arguments) .name = ob_##name,
const struct ob_ops ob_ops = { OB_CALLS(OB_ENTRY) };
