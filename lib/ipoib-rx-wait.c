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
#include "ipoib-ring.h"

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-ring-private.h"
#include "util.h"

void
ipoib_rxq_wait(struct ipoib_rxq_private *priv, struct dp_packet *packet)
{
    if (priv->n_waiting == priv->max_waiting) {
        priv->waiting = x2nrealloc(priv->waiting, &priv->max_waiting,
                                   sizeof *priv->waiting);
    }
    priv->waiting[priv->n_waiting++] = packet;
}

void
ipoib_rxq_deliver_waiting(struct ipoib_rxq *rxq,
                          struct dp_packet_batch *batch)
{
    struct ipoib_rxq_private *priv = rxq->priv;
    uint64_t n = 0, bytes = 0, multicast = 0;

    while (priv->first_waiting < priv->n_waiting && ipoib_batch_room(batch)) {
        struct dp_packet *packet = priv->waiting[priv->first_waiting++];
        const struct eth_header *eth = dp_packet_data(packet);

        n++;
        bytes += dp_packet_size(packet);
        multicast += eth_addr_is_multicast(eth->eth_dst);
        ipoib_batch_push(batch, packet);
    }
    if (priv->first_waiting == priv->n_waiting) {
        priv->first_waiting = priv->n_waiting = 0;
    }
    ipoib_count(&rxq->stats.packets, n);
    ipoib_count(&rxq->stats.bytes, bytes);
    ipoib_count(&rxq->stats.multicast, multicast);
}

void
ipoib_rxq_return_ring(struct ipoib_rxq *rxq, struct dp_packet_batch *batch)
{
    uint64_t n = 0, bytes = 0, multicast = 0;
    struct ipoib_msg msg;

    while (ipoib_batch_room(batch)
           && ipoib_msgq_pop(rxq->from_control, &msg)) {
        const struct eth_header *eth = dp_packet_data(msg.packet);

        n++;
        bytes += dp_packet_size(msg.packet);
        multicast += eth_addr_is_multicast(eth->eth_dst);
        ipoib_batch_push(batch, msg.packet);
    }
    ipoib_count(&rxq->stats.packets, n);
    ipoib_count(&rxq->stats.bytes, bytes);
    ipoib_count(&rxq->stats.multicast, multicast);
}
