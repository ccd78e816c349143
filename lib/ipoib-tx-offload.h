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

#ifndef IPOIB_TX_OFFLOAD_H
#define IPOIB_TX_OFFLOAD_H 1

/* Batches in which there may be packets that were left for a device to
 * complete: in front of ipoib_tx_batch(). */

struct dp_packet_batch;
struct ipoib_txq;

/* Sends 'batch' by 'send' in batches of complete packets, in order: completes
 * checksums, and cuts TCP into segments.  Otherwise as ipoib_tx_batch(). */
typedef void ipoib_tx_send_func(struct ipoib_txq *, struct dp_packet_batch *,
                                unsigned int class);
void ipoib_tx_offload_batch(struct ipoib_txq *, struct dp_packet_batch *batch,
                            unsigned int class, ipoib_tx_send_func *send);

#endif /* ipoib-tx-offload.h */
