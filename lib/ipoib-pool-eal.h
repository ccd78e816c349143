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

#ifndef IPOIB_POOL_EAL_H
#define IPOIB_POOL_EAL_H 1

/* DPDK's memory, all of it, as memory regions of protection domains.
 *
 * So packets of DPDK's ports and of vhost ports, and our own ones, can be sent
 * without a copy.  A region is added when EAL gets memory, and goes before EAL
 * gives it back: nobody has a packet in it any more.  A packet that lies in
 * two regions, or elsewhere (external buffers), is in none.
 *
 * In builds without DPDK, and as long as it is not initialized, there is no
 * such memory. */

#include <stddef.h>
#include <stdint.h>

struct ibv_pd;
struct ipoib_region;
struct ipoib_verbs;

/* Registers all memory with 'pd', if that has not been done. */
void ipoib_pool_eal_open(const struct ipoib_verbs *, struct ibv_pd *);
/* Ends that.  Nothing is sent any more. */
void ipoib_pool_eal_close(const struct ibv_pd *);

#ifdef DPDK_NETDEV
/* Data path: the region that has the 'len' bytes at 'data'; or one without
 * bytes. */
struct ipoib_region ipoib_pool_eal_region(const struct ibv_pd *,
                                          const void *data, size_t len);
#endif

#endif /* ipoib-pool-eal.h */
