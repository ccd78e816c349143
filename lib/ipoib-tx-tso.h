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

#ifndef IPOIB_TX_TSO_H
#define IPOIB_TX_TSO_H 1

/* A long TCP packet that the device cuts into segments: one WR. */

#include <stdbool.h>
#include <stdint.h>

struct dp_packet;
struct ibv_ah;
struct ipoib_segments;
struct ipoib_txq;

/* True if 'txq', which has no burst in the making, takes 'packet', as
 * 'segments', now: then they are its 'tso'.  Whether the device can read the
 * packet's memory is found out here alone: while other memory comes or goes,
 * it may look for a moment as if it could not, and a copy needs more room. */
bool ipoib_tx_tso_begin(struct ipoib_txq *, const struct dp_packet *packet,
                        const struct ipoib_segments *segments);

/* Sends '*packetp' to 'qpn' by 'ah' as 'txq->tso', for which there is room.
 * What lies in memory that the device can read is sent from there, and the
 * queue keeps the packet ('*packetp' becomes NULL); the rest is copied. */
void ipoib_tx_tso(struct ipoib_txq *txq, struct dp_packet **packetp,
                  struct ibv_ah *ah, uint32_t qpn);

#endif /* ipoib-tx-tso.h */
