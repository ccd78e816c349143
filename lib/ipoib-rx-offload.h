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

#ifndef IPOIB_RX_OFFLOAD_H
#define IPOIB_RX_OFFLOAD_H 1

/* Passes over packets that were received, for what not all of them want. */

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct dp_packet;
struct dp_packet_batch;
struct ipoib_rxq;

/* Marks those of 'packets', each of which was made of the completion in 'wc'
 * that has the same index, or is NULL, whose checksums the device has found
 * good: of IPv4 and of TCP or UDP. */
void ipoib_rx_mark_good(struct ipoib_rxq *, const struct ibv_wc wc[],
                        struct dp_packet *packets[], size_t n);

/* Keeps the MSS of TCP's SYNs in 'batch' to IP packets of 'mtu' bytes. */
void ipoib_rx_clamp(struct ipoib_rxq *, struct dp_packet_batch *batch,
                    uint32_t mtu);

#endif /* ipoib-rx-offload.h */
