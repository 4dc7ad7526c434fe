// SPDX-License-Identifier: MIT OR GPL-2.0
/* A module that contains drivers only, for volumes that obento.ko has mounted or will mount. */
#include <linux/module.h>
#include "obento.h"

static struct ob_driver ob_drivers_here = { .abi = OB_ABI, .size = sizeof(struct ob_ops), .owner = THIS_MODULE, .ops = &ob_ops };

static int __init ob_drivers_init(void) { return ob_register(&ob_drivers_here); }
static void __exit ob_drivers_exit(void) { ob_unregister(&ob_drivers_here); }
module_init(ob_drivers_init);
module_exit(ob_drivers_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Drivers of obento, which replace those of mounted volumes");
