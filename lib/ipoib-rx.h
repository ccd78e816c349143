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

#ifndef IPOIB_RX_H
#define IPOIB_RX_H 1

/* Receive: from the fabric to the bridge, a batch at a time. */

#include "ipoib-ring.h"

struct dp_packet_batch;

/* Polls 'rxq' once and its return ring, and appends to 'batch' (empty) at
 * most NETDEV_MAX_BURST Ethernet frames.  ARP, ND, IGMP and MLD go to the
 * control thread, from where they come back by the return ring.  Refills the
 * receive queue.  Returns 0, or EAGAIN if there is nothing to deliver.
 * Called by the thread that owns the queue, an RCU reader. */
int ipoib_rx_batch(struct ipoib_rxq *, struct dp_packet_batch *batch);

#endif /* ipoib-rx.h */
