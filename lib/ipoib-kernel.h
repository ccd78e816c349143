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

#ifndef IPOIB_KERNEL_H
#define IPOIB_KERNEL_H 1

/* Linux's own IPoIB (ib_ipoib) on the same port of an HCA.
 *
 * The SA knows the members of a group by their port, and doesn't count them:
 * where the kernel has a network device in the same partition, what one of the
 * two leaves, the other has left as well. */

#include <stdbool.h>
#include <stdint.h>

struct ipoib_kernel_netdev {
    char name[16];              /* Of the one that is up; or empty. */
    uint32_t hash;              /* Of all that there are and their states. */
};

/* Looks below 'sysfs' ("/sys") for network devices of the partition 'pkey' of
 * 'port' of the InfiniBand device 'device'. */
void ipoib_kernel_find(const char *sysfs, const char *device, uint8_t port,
                       uint16_t pkey, struct ipoib_kernel_netdev *);

#endif /* ipoib-kernel.h */
