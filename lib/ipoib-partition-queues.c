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

#include <errno.h>
#include "ipoib-ring-private.h"
#include "ipoib-tx.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_queues);

/* Until a transmit queue that could not be restarted is tried again, ms. */
#define RESTART_PAUSE 100

static void
partition_destroy_txqs(struct ipoib_partition *part, unsigned int keep)
{
    while (part->n_txq > keep) {
        struct ipoib_txq *txq = part->txqs[--part->n_txq];

        ipoib_txq_drop(txq);
        ipoib_tx_stats_add(&part->tx_stats, &txq->stats);
        ipoib_table_remove(part->shared.own_qpns, txq->qp->qp_num);
        ipoib_txq_destroy(txq);
    }
    if (!part->n_txq) {
        free(part->txqs);
        part->txqs = NULL;
    }
}

static int
partition_create_txqs(struct ipoib_partition *part,
                      const struct ipoib_partition_config *config)
{
    part->txqs = xrealloc(part->txqs, config->n_txq * sizeof *part->txqs);
    while (part->n_txq < config->n_txq) {
        struct ipoib_txq_params params = {
            .pd = part->hca->pd,
            .ud = part->ud,
            .id = part->n_txq,
            .n_desc = config->n_txq_desc,
            .mtu = ib_mtu_bytes(part->port->attr.max_mtu),
            .numa_id = part->hca->numa_id,
            .tso = ipoib_partition_max_tso(part) != 0,
        };
        struct ipoib_txq *txq;
        int error = ipoib_txq_create(&part->shared, &params, &txq);

        if (error) {
            return error;
        }
        part->txqs[part->n_txq++] = txq;
        ipoib_table_insert(part->shared.own_qpns, txq->qp->qp_num, txq->id);
    }
    return 0;
}

static void
host_withdraw(struct ipoib_host *host, void *part_)
{
    struct ipoib_partition *part = part_;

    ipoib_hostqps_release(part->hostqps, part->shared.hosts, host);
}

static void
partition_destroy_rxqs(struct ipoib_partition *part)
{
    size_t pos = 0;

    ipoib_host_walk(part->shared.hosts, &pos, SIZE_MAX, host_withdraw, part);
    ipoib_hostqps_configure(part->hostqps, NULL, 0, &part->ud, 0);
    /* The kernel does not destroy a QP that is attached. */
    ipoib_mcast_detach_all(part->shared.mcast);
    while (part->n_rxq) {
        struct ipoib_rxq *rxq = part->rxqs[--part->n_rxq];

        ipoib_rxq_drop(rxq);
        ipoib_rx_stats_add(&part->rx_stats, &rxq->stats);
        ipoib_table_remove(part->shared.own_qpns, rxq->base_qp->qp_num);
        ipoib_ctlq_forget(part->ctlq, rxq->base_qp->qp_num);
        ipoib_rxq_destroy(rxq);
    }
    free(part->rxqs);
    part->rxqs = NULL;
    ipoib_pool_detach(part->pool);
    part->pool = NULL;
    memset(&part->growth, 0, sizeof part->growth);
}

/* Of the 'n_rxq_desc' buffers of a receive queue, those that are not posted at
 * first: a burst is in OVS when the next one has been received, and then a
 * chain, as long as both, can be posted at once.  More may be in OVS for a
 * while; then less are posted. */
#define N_IN_OVS (2 * NETDEV_MAX_BURST)
BUILD_ASSERT_DECL(IPOIB_MIN_DESC >= 2 * N_IN_OVS);

static int
partition_create_pool(struct ipoib_partition *part,
                      const struct ipoib_partition_config *config)
{
    size_t n = (size_t) config->n_rxq * config->n_rxq_desc;

    part->pool = ipoib_pool_create(part->hca->verbs, part->hca->pd, n,
                                   ib_mtu_bytes(part->port->attr.max_mtu),
                                   part->hca->numa_id);
    return part->pool ? 0 : errno;
}

static uint64_t
partition_no_buffer(const struct ipoib_partition *part)
{
    uint64_t no_buffer = 0;

    for (unsigned int i = 0; i < part->n_rxq; i++) {
        no_buffer += ipoib_counter_read(&part->rxqs[i]->stats.no_buffer);
    }
    return no_buffer;
}

/* Packets may stay in OVS for long: many of DPDK's drivers keep what they have
 * sent until their ring needs the room.  How many that will be nobody knows
 * beforehand, so the pool becomes larger when queues turn out to lack
 * buffers.  What they lack while it grows does not count. */
void
ipoib_partition_watch_pool(struct ipoib_partition *part)
{
    struct ipoib_pool_stats before, stats;
    int error;

    if (part->growth.over
        || partition_no_buffer(part) == part->growth.no_buffer) {
        return;
    }

    ipoib_pool_get_stats(part->pool, &before);
    error = ipoib_pool_grow(part->pool);
    part->growth.no_buffer = partition_no_buffer(part);
    if (!error) {
        ipoib_pool_get_stats(part->pool, &stats);
        VLOG_INFO("%s: receive queues lacked buffers, since %"PRIuSIZE" of "
                  "%"PRIuSIZE" are in packets elsewhere in OVS: there are "
                  "%"PRIuSIZE" now", part->name, before.n_packets,
                  before.n_bufs, stats.n_bufs);
        return;
    }
    part->growth.over = true;
    VLOG_INFO("%s: receive queues lack buffers, since %"PRIuSIZE" of "
              "%"PRIuSIZE" are in packets elsewhere in OVS, and there can be "
              "no more (%s): packets are copied", part->name,
              before.n_packets, before.n_bufs,
              error == ERANGE ? "that is the limit" : ovs_strerror(error));
}

static int
partition_create_rxqs(struct ipoib_partition *part,
                      const struct ipoib_partition_config *config)
{
    int error = partition_create_pool(part, config);

    part->rxqs = xcalloc(config->n_rxq, sizeof *part->rxqs);
    while (!error && part->n_rxq < config->n_rxq) {
        struct ipoib_rxq_params params = {
            .pd = part->hca->pd,
            .pool = part->pool,
            .send_cq = ipoib_ctlq_cq(part->ctlq),
            .ud = part->ud,
            .id = part->n_rxq,
            .n_desc = config->n_rxq_desc - N_IN_OVS,
            .numa_id = part->hca->numa_id,
            .use_srq = part->hca->attr.max_srq > 0,
        };
        struct ipoib_rxq *rxq;

        error = ipoib_rxq_create(&part->shared, &params, &rxq);
        if (!error) {
            part->rxqs[part->n_rxq++] = rxq;
            ipoib_table_insert(part->shared.own_qpns, rxq->base_qp->qp_num,
                               rxq->id);
            error = ipoib_rxq_refill(rxq);
        }
    }
    return error;
}

/* Only the base QP of receive queue 0 is attached to groups. */
int
ipoib_partition_group_attach(void *part_, const struct ib_gid *mgid,
                             uint16_t mlid)
{
    struct ipoib_partition *part = part_;
    union ibv_gid gid;

    memcpy(&gid, mgid, sizeof gid);
    return part->n_rxq
           ? part->hca->verbs->attach_mcast(part->rxqs[0]->base_qp, &gid, mlid)
           : ENODEV;
}

int
ipoib_partition_group_detach(void *part_, const struct ib_gid *mgid,
                             uint16_t mlid)
{
    struct ipoib_partition *part = part_;
    union ibv_gid gid;

    memcpy(&gid, mgid, sizeof gid);
    return part->n_rxq
           ? part->hca->verbs->detach_mcast(part->rxqs[0]->base_qp, &gid, mlid)
           : 0;
}

static void
host_assign(struct ipoib_host *host, void *part_)
{
    struct ipoib_partition *part = part_;

    ipoib_hostqps_assign(part->hostqps, part->shared.hosts, host);
    ipoib_partition_announce(part, host);
}

static int
partition_configure_rx(struct ipoib_partition *part,
                       const struct ipoib_partition_config *config)
{
    size_t pos = 0;
    int error;

    if (part->n_rxq == config->n_rxq
        && part->config.n_rxq_desc == config->n_rxq_desc) {
        ipoib_hostqps_configure(part->hostqps, part->rxqs, part->n_rxq,
                                &part->ud, config->max_host_qps);
        return 0;
    }
    partition_destroy_rxqs(part);
    error = partition_create_rxqs(part, config);
    if (error) {
        return error;
    }
    ipoib_hostqps_configure(part->hostqps, part->rxqs, part->n_rxq, &part->ud,
                            config->max_host_qps);
    ipoib_host_walk(part->shared.hosts, &pos, SIZE_MAX, host_assign, part);
    return 0;
}

int
ipoib_partition_configure(struct ipoib_partition *part,
                          const struct ipoib_partition_config *config)
{
    int error = partition_configure_rx(part, config);

    if (!error) {
        partition_destroy_txqs(part, part->config.n_txq_desc
                                     == config->n_txq_desc
                                     ? config->n_txq : 0);
        error = partition_create_txqs(part, config);
    }
    if (error) {
        ipoib_partition_destroy_queues(part);
        memset(&part->config, 0, sizeof part->config);
        /* This tells nobody: the bridge would try again at once, for ever. */
        atomic_store_relaxed(&part->shared.up, false);
        return error;
    }
    ipoib_neigh_table_set_max(part->shared.neighs, config->max_neighbours);
    ipoib_partition_prio_configure(part, &config->prio);
    part->config = *config;
    ipoib_partition_set_group_limits(part);
    ipoib_partition_set_peers(part, config->peers);
    atomic_store_relaxed(&part->shared.eth_mtu, config->eth_mtu);
    atomic_store_relaxed(&part->shared.clamp_mss, config->clamp_mss);
    ipoib_partition_update(part);
    ipoib_hca_kick(part->hca);
    return 0;
}


/* Transmit queues that have failed. */

static uint32_t
txq_state(const struct ipoib_txq *txq)
{
    uint32_t state;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_txq *, txq)->state, &state);
    return state;
}

/* True if 'txq' stands still and can be restarted. */
static bool
txq_is_ready(struct ipoib_txq *txq)
{
    uint32_t state = txq_state(txq);

    return (state != IPOIB_TXQ_RUNNING && state != IPOIB_TXQ_RESTARTED
            && time_msec() >= txq->watch.next_restart
            && ipoib_txq_is_still(txq));
}

/* 'txq' is idle.  A queue takes its completions when it sends the next time,
 * but the packets that it holds must not wait for that: a pool lacks them.  So
 * the queue is stopped for a moment; what is to be sent meanwhile, the control
 * thread sends. */
void
ipoib_partition_release_txq(const struct ipoib_partition *part,
                            struct ipoib_txq *txq)
{
    if (ipoib_txq_holds(txq) && txq_state(txq) == IPOIB_TXQ_RUNNING) {
        VLOG_DBG("%s: idle transmit queue %u is to release its packets",
                 part->name, txq->id);
        txq->watch.release = true;
        ipoib_txq_stop(txq);
    }
}

static void
txq_restart(struct ipoib_partition *part, struct ipoib_txq *txq)
{
    bool failed = txq->watch.failed || txq_state(txq) == IPOIB_TXQ_ERROR;
    bool release = txq->watch.release && !failed;
    int error;

    txq->watch.release = false;
    if (release) {
        if (ipoib_tx_reap(txq)) {
            ipoib_txq_continue(txq);
            return;
        }
        failed = true;
    }
    error = ipoib_txq_restart(txq, &part->ud);

    if (error) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "%s: cannot restart transmit queue %u (%s)",
                     part->name, txq->id, ovs_strerror(error));
        txq->watch.next_restart = time_msec() + RESTART_PAUSE;
        txq->watch.failed = failed;
        return;
    }
    txq->watch.next_restart = 0;
    txq->watch.failed = false;
    if (failed) {
        ipoib_partition_recovered(part, txq->qp->qp_num,
                                  "a transmit queue failed");
    }
}

/* Restarts transmit queues that stand still. */
void
ipoib_partition_run_txqs(struct ipoib_partition *part)
{
    for (unsigned int i = 0; i < part->n_txq; i++) {
        if (txq_is_ready(part->txqs[i])) {
            txq_restart(part, part->txqs[i]);
        }
    }
}

bool
ipoib_partition_txqs_pending(const struct ipoib_partition *part)
{
    for (unsigned int i = 0; i < part->n_txq; i++) {
        if (txq_is_ready(part->txqs[i])) {
            return true;
        }
    }
    return false;
}

/* Who takes a queue to another state wakes the control thread; only what could
 * not be restarted has a timer. */
void
ipoib_partition_wait_txqs(const struct ipoib_partition *part)
{
    for (unsigned int i = 0; i < part->n_txq; i++) {
        if (part->txqs[i]->watch.next_restart) {
            poll_timer_wait_until(part->txqs[i]->watch.next_restart);
        }
    }
}


/* Changes in place. */

void
ipoib_partition_set_qkey(struct ipoib_partition *part, uint32_t qkey)
{
    struct ibv_qp_attr attr = { .qkey = qkey };
    const struct ipoib_verbs *verbs = part->hca->verbs;

    if (part->ud.qkey == qkey) {
        return;
    }
    part->ud.qkey = qkey;
    atomic_store_relaxed(&part->shared.qkey, qkey);
    for (unsigned int i = 0; i < part->n_rxq; i++) {
        verbs->modify_qp(part->rxqs[i]->base_qp, &attr, IBV_QP_QKEY);
    }
    for (unsigned int i = 0; i < part->n_txq; i++) {
        verbs->modify_qp(part->txqs[i]->qp, &attr, IBV_QP_QKEY);
    }
    ipoib_hostqps_update(part->hostqps, &part->ud, false);
}

void
ipoib_partition_restart_qps(struct ipoib_partition *part)
{
    const struct ipoib_verbs *verbs = part->hca->verbs;

    for (unsigned int i = 0; i < part->n_rxq; i++) {
        struct ibv_qp *qp = part->rxqs[i]->base_qp;

        ipoib_verbs_ud_restart(verbs, qp, &part->ud);
        ipoib_ctlq_forget(part->ctlq, qp->qp_num);
        ipoib_rxq_suspect_loss(part->rxqs[i]);
    }
    /* Transmit queues are restarted when the data path leaves them alone. */
    for (unsigned int i = 0; i < part->n_txq; i++) {
        part->txqs[i]->watch.release = false;
        ipoib_txq_stop(part->txqs[i]);
    }
    ipoib_hostqps_update(part->hostqps, &part->ud, true);
}

void
ipoib_partition_destroy_queues(struct ipoib_partition *part)
{
    partition_destroy_txqs(part, 0);
    partition_destroy_rxqs(part);
}
