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

#ifndef IPOIB_TX_H
#define IPOIB_TX_H 1

/* Send: from the bridge to the fabric, a batch at a time. */

#include "ipoib-ring.h"

struct dp_packet_batch;

/* Sends the Ethernet frames of 'batch', any number, and deletes them all,
 * whatever becomes of them.  Known neighbours and groups are sent to at once
 * from the queue's own QP; ARP, ND, broadcasts, and what has no path yet go to
 * the control thread.  What was left for a device to complete is completed
 * before all that (ipoib-tx-offload.h).  The caller holds 'txq->lock' where
 * OVS shares the queue, and is an RCU reader. */
void ipoib_tx_batch(struct ipoib_txq *, struct dp_packet_batch *batch);

/* The same for frames of class 'class' of options:prio-map. */
void ipoib_tx_batch_class(struct ipoib_txq *, struct dp_packet_batch *batch,
                          unsigned int class);

/* Takes completions of a queue that has gone idle, so that the packets that
 * its last bursts hold are released.  Returns false if one of them has failed.
 * Control thread, while ipoib_txq_is_still(), or nobody sends. */
bool ipoib_tx_reap(struct ipoib_txq *);

#endif /* ipoib-tx.h */
