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
#include "ipoib-partition-private.h"

#include <inttypes.h>
#include <string.h>
#include "dp-packet.h"
#include "openvswitch/vlog.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_watch);

/* A transmit queue that is full and sends nothing for so many seconds stands
 * still, and so does a QP of the control thread whose sends do not complete
 * within this time, in ms. */
#define TX_STALLED 2
#define CTLQ_STALLED 2000

/* A receive queue that is polled and gets nothing for so many seconds is sent
 * packets of our own, one a second, and stands still if so many are missed. */
#define RX_IDLE 10
#define RX_MISSED 3

void
ipoib_partition_recovered(struct ipoib_partition *part, uint32_t qpn,
                          const char *why)
{
    part->watch.n_recovered++;
    ipoib_event_add(&part->events, part->name, IPOIB_EVENT_QP,
                    "%s, queue pair 0x%06"PRIx32": it works again", why, qpn);
}


/* Errors that the device reports. */

void
ipoib_partition_qp_event(struct ipoib_partition *part,
                         enum ibv_event_type type, uint32_t qpn)
{
    if (ipoib_hostqps_event(part->hostqps, type, qpn)) {
        ipoib_partition_recovered(part, qpn, "the device reported an error");
        return;
    }
    if (type == IBV_EVENT_QP_LAST_WQE_REACHED
        || type == IBV_EVENT_SQ_DRAINED) {
        return;
    }
    for (unsigned int i = 0; i < part->n_txq; i++) {
        struct ipoib_txq *txq = part->txqs[i];

        if (txq->qp->qp_num == qpn) {
            txq->watch.failed = true;
            ipoib_txq_stop(txq);
        }
    }
}


/* Queues that stand still without an error. */

static void
watch_txq(struct ipoib_partition *part, struct ipoib_txq *txq)
{
    uint64_t packets = ipoib_counter_read(&txq->stats.packets);
    uint64_t full = ipoib_counter_read(&txq->stats.drop_queue_full);
    bool stalled = packets == txq->watch.packets && full != txq->watch.full;

    if (packets == txq->watch.packets) {
        ipoib_partition_release_txq(part, txq);
    }
    txq->watch.packets = packets;
    txq->watch.full = full;
    txq->watch.stalled = stalled ? txq->watch.stalled + 1 : 0;
    if (txq->watch.stalled >= TX_STALLED) {
        txq->watch.stalled = 0;
        txq->watch.failed = true;
        part->watch.n_stalled++;
        VLOG_DBG("%s: transmit queue %u stands still", part->name, txq->id);
        ipoib_txq_stop(txq);
    }
}

static void
watch_ctlq(struct ipoib_partition *part, long long int now)
{
    uint32_t qpn;

    while ((qpn = ipoib_ctlq_stalled(part->ctlq, now - CTLQ_STALLED)) != 0) {
        part->watch.n_stalled++;
        if (ipoib_hostqps_restart(part->hostqps, qpn)) {
            ipoib_partition_recovered(part, qpn, "sends did not complete");
        } else {
            ipoib_ctlq_forget(part->ctlq, qpn);
        }
    }
}

/* Sends a packet from 'qp' to our own 'qpn', which tells of it. */
static void
send_probe(struct ipoib_partition *part, struct ibv_qp *qp, uint32_t qpn)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    const struct ipoib_hca_port *port = part->port;
    struct ibv_ah_attr attr = {
        .dlid = port->attr.lid,
        .port_num = port->num,
        .is_global = port->needs_grh,
    };
    struct ipoib_header *header;
    struct dp_packet *packet;
    struct ibv_ah *ah;

    memcpy(attr.grh.dgid.raw, port->gid.raw, IB_GID_LEN);
    ah = part->hca->verbs->create_ah(part->hca->pd, &attr);
    if (!ah) {
        return;
    }
    packet = dp_packet_new(IPOIB_HEADER_LEN);
    header = dp_packet_put_zeros(packet, sizeof *header);
    header->type = htons(IPOIB_TYPE_PROBE);
    ipoib_ctlq_send(part->ctlq, qp, packet, ah, qpn, part->ud.qkey);
    dp_packet_delete(packet);
    ipoib_ah_retire(part->hca->reaper, ah);
}

/* Sends a packet to the base QP of 'rxq', which counts it. */
static void
probe_rxq(struct ipoib_partition *part, const struct ipoib_rxq *rxq)
{
    send_probe(part, part->rxqs[0]->base_qp, rxq->base_qp->qp_num);
}

static void
rxq_stalled(struct ipoib_partition *part, struct ipoib_rxq *rxq)
{
    uint32_t qpn = rxq->base_qp->qp_num;

    rxq->watch.idle = rxq->watch.missed = 0;
    part->watch.n_stalled++;
    if (++rxq->watch.n_restarts == 3) {
        VLOG_WARN("%s: receive queue %u stands still, and starting its queue "
                  "pair again does not help", part->name, rxq->id);
    }
    if (ipoib_hostqps_restart(part->hostqps, qpn)) {
        ipoib_partition_recovered(part, qpn, "a receive queue stood still");
    }
}

/* What has come to 'rxq', but for probes of hosts' QPs: these say nothing of
 * the base QP. */
static uint64_t
rxq_seen(const struct ipoib_rxq *rxq)
{
    uint64_t n = 0;

#define COUNTER(MEMBER, NAME, HELP)                         \
    if (&rxq->stats.MEMBER != &rxq->stats.host_probes) {    \
        n += ipoib_counter_read(&rxq->stats.MEMBER);        \
    }
    IPOIB_RX_COUNTERS
#undef COUNTER
    return n;
}

static void
watch_rxq(struct ipoib_partition *part, struct ipoib_rxq *rxq)
{
    uint64_t seen = rxq_seen(rxq);
    uint64_t total = seen + ipoib_counter_read(&rxq->stats.host_probes);
    uint64_t ring_full = ipoib_counter_read(&rxq->stats.drop_ring_full);
    uint64_t drained;
    bool polled, up;

    atomic_read_relaxed(&rxq->drained, &drained);
    atomic_read_relaxed(&part->shared.up, &up);
    polled = drained != rxq->watch.drained;
    rxq->watch.drained = drained;
    /* A probe of a host's QP for which the ring was full has come, too. */
    rxq->watch.alive = (total != rxq->watch.total
                        && ring_full == rxq->watch.ring_full);
    rxq->watch.total = total;
    rxq->watch.ring_full = ring_full;
    if (seen != rxq->watch.seen || !polled || !up) {
        if (seen != rxq->watch.seen) {
            rxq->watch.n_restarts = 0;
        }
        rxq->watch.seen = seen;
        rxq->watch.idle = rxq->watch.missed = 0;
    } else if (++rxq->watch.idle >= RX_IDLE) {
        if (rxq->watch.missed++ < RX_MISSED) {
            probe_rxq(part, rxq);
        } else {
            rxq_stalled(part, rxq);
        }
    }
}

/* For ipoib_hostqps_watch(). */
struct host_watch {
    struct ipoib_partition *part;
    uint64_t rxqs;              /* 1-bits: their base QPs were probed. */
};

static void
host_probe(void *hw_, struct ibv_qp *qp, unsigned int rxq, bool missed)
{
    struct host_watch *hw = hw_;
    uint64_t bit = UINT64_C(1) << (rxq % 64);

    send_probe(hw->part, qp, qp->qp_num);
    if (missed && !(hw->rxqs & bit)) {
        /* Is it the QP, or the whole queue? */
        hw->rxqs |= bit;
        probe_rxq(hw->part, hw->part->rxqs[rxq]);
    }
}

static void
host_stalled(void *hw_, uint32_t qpn)
{
    struct ipoib_partition *part = ((struct host_watch *) hw_)->part;

    part->watch.n_stalled++;
    if (ipoib_hostqps_restart(part->hostqps, qpn)) {
        ipoib_partition_recovered(part, qpn,
                                  "a host's queue pair stood still");
    }
}

static void
watch_hosts(struct ipoib_partition *part, long long int now)
{
    struct host_watch hw = { .part = part };
    const struct ipoib_hostqps_watcher watcher = {
        .probe = host_probe,
        .stalled = host_stalled,
        .aux = &hw,
    };
    bool up;

    atomic_read_relaxed(&part->shared.up, &up);
    if (up) {
        ipoib_hostqps_watch(part->hostqps, &watcher, now);
    }
}

void
ipoib_partition_watch(struct ipoib_partition *part, long long int now)
{
    for (unsigned int i = 0; i < part->n_txq; i++) {
        watch_txq(part, part->txqs[i]);
    }
    for (unsigned int i = 0; i < part->n_rxq; i++) {
        watch_rxq(part, part->rxqs[i]);
    }
    ipoib_partition_watch_pool(part);
    watch_hosts(part, now);
    watch_ctlq(part, now);
}
