/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#undef NDEBUG
#include "ipoib-kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include "ovstest.h"
#include "util.h"

/* test-ipoib-kernel SYSFS DEVICE PORT P_KEY
 *
 * Prints which network device of the kernel is up in that partition, and a
 * hash of all that there are. */
static void
test_ipoib_kernel_main(int argc, char *argv[])
{
    struct ipoib_kernel_netdev netdev;

    set_program_name(argv[0]);
    ovs_assert(argc == 5);
    ipoib_kernel_find(argv[1], argv[2], atoi(argv[3]),
                      strtoul(argv[4], NULL, 0), &netdev);
    printf("%s %08x\n", netdev.name[0] ? netdev.name : "none", netdev.hash);
}

OVSTEST_REGISTER("test-ipoib-kernel", test_ipoib_kernel_main);
