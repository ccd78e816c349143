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
#include "openvswitch/vlog.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_watch);

/* A transmit queue that is full and sends nothing for so many seconds stands
 * still, and so does a QP of the control thread whose sends do not complete
 * within this time, in ms. */
#define TX_STALLED 2
#define CTLQ_STALLED 2000

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

void
ipoib_partition_watch(struct ipoib_partition *part, long long int now)
{
    for (unsigned int i = 0; i < part->n_txq; i++) {
        watch_txq(part, part->txqs[i]);
    }
    watch_ctlq(part, now);
}
