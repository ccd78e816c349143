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
#include "ipoib-tx-offload.h"

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-neigh.h"
#include "ipoib-offload.h"
#include "ipoib-ring.h"
#include "util.h"

/* Packets that are complete are gathered, and sent when there are
 * NETDEV_MAX_BURST of them. */
struct tx_offload {
    struct ipoib_txq *txq;
    unsigned int class;
    ipoib_tx_send_func *send;
    struct dp_packet_batch batch;
};

static void
offload_flush(struct tx_offload *tx)
{
    if (!dp_packet_batch_is_empty(&tx->batch)) {
        tx->send(tx->txq, &tx->batch, tx->class);
        dp_packet_batch_refill_init(&tx->batch);
    }
}

static void
offload_add(struct tx_offload *tx, struct dp_packet *packet)
{
    ipoib_batch_push(&tx->batch, packet);
    if (!ipoib_batch_room(&tx->batch)) {
        offload_flush(tx);
    }
}

/* How long the IP packets may be that go where 'packet', an Ethernet frame,
 * goes.  Where the hosts' MTU is known, they are not longer than that either:
 * it may be all that is left of what a host knows of the path to a station
 * behind a router. */
static uint32_t
path_mtu(const struct tx_offload *tx, const struct dp_packet *packet)
{
    struct ipoib_shared *shared = tx->txq->shared;
    uint64_t mac = ipoib_get_mac(dp_packet_data(packet));
    uint32_t mtu, eth_mtu, slot;

    atomic_read_relaxed(&shared->mtu, &mtu);
    atomic_read_relaxed(&shared->eth_mtu, &eth_mtu);
    if (eth_mtu) {
        mtu = MIN(mtu, eth_mtu);
    }
    ipoib_neigh_by_mac(shared->neighs, &mac, 1, &slot);
    if (slot != IPOIB_SLOT_NONE) {
        uint32_t neigh_mtu = ipoib_neigh_fast(shared->neighs, slot)->mtu;

        mtu = neigh_mtu ? MIN(mtu, neigh_mtu) : mtu;
    }
    return mtu;
}

/* Sends 'packet', whose parts are 'offload', as TCP segments.  Returns false
 * if that cannot be. */
static bool
offload_segments(struct tx_offload *tx, const struct dp_packet *packet,
                 const struct ipoib_offload *offload)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    struct ipoib_segments segments;
    struct dp_packet *segment;
    uint64_t n = 0;

    if (!ipoib_segments_init(&segments, packet, offload, path_mtu(tx, packet),
                             ipoib_pkt_segment_size(packet))) {
        return false;
    }
    while ((segment = ipoib_segments_next(&segments))) {
        offload_add(tx, segment);
        n++;
    }
    ipoib_count(&stats->offload_segmented, 1);
    ipoib_count(&stats->offload_segments, n);
    return true;
}

/* Sends 'packet', which is not complete. */
static void
offload_one(struct tx_offload *tx, struct dp_packet *packet)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    struct ipoib_offload offload;

    if (!ipoib_offload_parse(packet, &offload)) {
        ipoib_count(&stats->drop_offload, 1);
    } else if (!ipoib_pkt_is_tso(packet)) {
        ipoib_offload_complete(&offload);
        ipoib_count(&stats->offload_csum, 1);
        dp_packet_reset_offload(packet);
        offload_add(tx, packet);
        return;
    } else if (!offload_segments(tx, packet, &offload)) {
        ipoib_count(&stats->drop_offload, 1);
    }
    dp_packet_delete(packet);
}

void
ipoib_tx_offload_batch(struct ipoib_txq *txq, struct dp_packet_batch *batch,
                       unsigned int class, ipoib_tx_send_func *send)
{
    struct tx_offload tx = { .txq = txq, .class = class, .send = send };
    struct dp_packet *packet;

    ipoib_batch_init(&tx.batch);
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        if (ipoib_pkt_needs_offload(packet)) {
            offload_one(&tx, packet);
        } else {
            offload_add(&tx, packet);
        }
    }
    offload_flush(&tx);
    ipoib_batch_destroy(&tx.batch);
}
