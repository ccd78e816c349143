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
#include "coverage.h"
#include "dp-packet.h"
#include "ipoib-mtu.h"
#include "openvswitch/vlog.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_send);

COVERAGE_DEFINE(ipoib_control_held);

/* A packet that waits for a path or a join. */
struct waiting_packet {
    struct ovs_list node;
    struct dp_packet *packet;   /* From the IPoIB header on. */
    uint32_t sqpn;              /* QP to send it from. */
};

/* In 'aux' of struct ipoib_path are the neighbours that use it: struct
 * ipoib_neigh_list, IPOIB_NEIGH_BY_PATH.  In 'path' of struct ipoib_neigh is
 * the path that it uses. */


/* Waiting packets. */

/* The packets of a neighbour's wait list are dropped. */
static void
wait_list_clear(struct ipoib_partition *part, struct ovs_list *wait, size_t *n)
{
    struct waiting_packet *wp;

    /* An entry that never waited has no list yet. */
    if (!*n) {
        return;
    }
    ipoib_count(&part->tx_stats.drop_no_path, *n);
    ipoib_count(&part->tx_stats.waiting, -(uint64_t) *n);
    LIST_FOR_EACH_POP (wp, node, wait) {
        dp_packet_delete(wp->packet);
        free(wp);
    }
    *n = 0;
}

/* Appends 'packet' (taken) to a wait list of at most 'max' packets; 'counter'
 * is for those that are too many. */
static void
wait_list_push(struct ipoib_partition *part, struct ovs_list *wait, size_t *n,
               size_t max, atomic_uint64_t *counter, struct dp_packet *packet,
               uint32_t sqpn)
{
    struct waiting_packet *wp;

    if (*n >= max) {
        ipoib_count(counter, 1);
        dp_packet_delete(packet);
        return;
    }
    if (!*n) {
        ovs_list_init(wait);
    }
    wp = xmalloc(sizeof *wp);
    wp->packet = packet;
    wp->sqpn = sqpn;
    ovs_list_push_back(wait, &wp->node);
    ++*n;
    ipoib_count(&part->tx_stats.waiting, 1);
    COVERAGE_INC(ipoib_control_held);
}


/* Sending. */

static void
ctlq_error(void *part_, uint32_t qpn, enum ibv_wc_status status)
{
    struct ipoib_partition *part = part_;
    static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

    ipoib_count(&part->tx_stats.drop_error, 1);
    if (ipoib_hostqps_resume(part->hostqps, qpn)) {
        ipoib_partition_recovered(part, qpn, "a send failed");
    } else if (status != IBV_WC_WR_FLUSH_ERR) {
        VLOG_INFO_RL(&rl, "%s: a packet from queue pair 0x%06x was not sent "
                     "(completion status %d)", part->name, qpn, status);
    }
}

/* Sends 'packet' (taken) from QP 'sqpn'. */
static void
partition_post(struct ipoib_partition *part, uint32_t sqpn,
               struct dp_packet *packet, struct ibv_ah *ah, uint32_t dqpn)
{
    struct ipoib_tx_stats *stats = &part->tx_stats;
    struct ibv_qp *qp;
    int error;

    /* What has completed goes first, so that few slots are ever used. */
    ipoib_ctlq_run(part->ctlq, ctlq_error, part);
    qp = ipoib_hostqps_find(part->hostqps, sqpn);
    if (!qp && part->n_rxq) {
        qp = part->rxqs[0]->base_qp;
    }
    error = qp ? ipoib_ctlq_send(part->ctlq, qp, packet, ah, dqpn,
                                 part->ud.qkey)
            : ENODEV;
    if (!error) {
        ipoib_count(&stats->packets, 1);
        ipoib_count(&stats->bytes, dp_packet_size(packet) - IPOIB_HEADER_LEN
                                   + ETH_HEADER_LEN);
        ipoib_count(&stats->multicast, dqpn == IB_QPN_MULTICAST);
    } else {
        ipoib_count(error == EAGAIN ? &stats->drop_queue_full
                    : error == EMSGSIZE ? &stats->drop_too_long
                    : &stats->drop_post, 1);
    }
    dp_packet_delete(packet);
}

/* As partition_post(), for a path that takes IP packets of 'mtu' bytes, which
 * may not have been known when the packet came: IPv4 is cut where it may be,
 * and of the rest it is the next packet that is answered with an error. */
static void
partition_post_path(struct ipoib_partition *part, uint32_t sqpn,
                    struct dp_packet *packet, struct ibv_ah *ah, uint32_t dqpn,
                    uint32_t mtu)
{
    const struct ipoib_header *header = dp_packet_data(packet);
    size_t len = dp_packet_size(packet) - sizeof *header;
    uint16_t type = ntohs(header->type);
    struct ipoib_tx_stats *stats = &part->tx_stats;
    struct ipoib_mtu_fragmenter f;
    struct dp_packet *frag;

    if (OVS_LIKELY(len <= mtu)) {
        partition_post(part, sqpn, packet, ah, dqpn);
        return;
    }
    if (type == ETH_TYPE_IP
        && ipoib_mtu_judge(type, header + 1, len, mtu) == IPOIB_MTU_FRAGMENT) {
        ipoib_mtu_fragment(&f, header + 1, len, mtu, header, sizeof *header);
        while ((frag = ipoib_mtu_next_fragment(&f))) {
            partition_post(part, sqpn, frag, ah, dqpn);
            ipoib_count(&stats->fragments, 1);
        }
        ipoib_count(&stats->fragmented, 1);
    } else {
        ipoib_count(&stats->drop_too_long, 1);
    }
    dp_packet_delete(packet);
}

/* Sends the packets of a wait list; 'mtu' as above. */
static void
wait_list_send(struct ipoib_partition *part, struct ovs_list *wait, size_t *n,
               struct ibv_ah *ah, uint32_t dqpn, uint32_t mtu)
{
    struct waiting_packet *wp;

    if (!*n) {
        return;
    }
    ipoib_count(&part->tx_stats.waiting, -(uint64_t) *n);
    LIST_FOR_EACH_POP (wp, node, wait) {
        partition_post_path(part, wp->sqpn, wp->packet, ah, dqpn, mtu);
        free(wp);
    }
    *n = 0;
}

static uint16_t
path_mtu(const struct ipoib_partition *part, const struct ipoib_path *path)
{
    uint32_t mtu;

    atomic_read_relaxed(&part->shared.mtu, &mtu);
    return MIN(mtu, ib_mtu_bytes(path->mtu) - IPOIB_HEADER_LEN);
}

/* Of packets that wait for the path. */
static void
neigh_send_waiting(struct ipoib_partition *part, struct ipoib_neigh *neigh,
                   const struct ipoib_path *path)
{
    if (neigh->more) {
        wait_list_send(part, &neigh->more->wait, &neigh->more->n_wait,
                       path->ah, ipoib_addr_qpn(&neigh->addr),
                       path_mtu(part, path));
        ipoib_neigh_trim(neigh);
    }
}

static void
neigh_clear_waiting(struct ipoib_partition *part, struct ipoib_neigh *neigh)
{
    if (neigh->more) {
        wait_list_clear(part, &neigh->more->wait, &neigh->more->n_wait);
        ipoib_neigh_trim(neigh);
    }
}

static void
neigh_publish(struct ipoib_partition *part, struct ipoib_neigh *neigh)
{
    const struct ipoib_path *path = neigh->path;

    ipoib_neigh_set_ah(part->shared.neighs, neigh, path->ah,
                       path->ah ? path_mtu(part, path) : 0);
    ipoib_partition_prio_republish(part, neigh);
}

static struct ipoib_path *
neigh_link(struct ipoib_partition *part, struct ipoib_neigh *neigh)
{
    struct ipoib_path *path = neigh->path;

    if (!path) {
        path = neigh->path = ipoib_path_ref(part->paths, &neigh->addr.gid);
        if (!path->aux) {
            path->aux = xmalloc(sizeof(struct ipoib_neigh_list));
            ipoib_neigh_list_init(path->aux);
        }
        ipoib_neigh_list_push_back(part->shared.neighs, path->aux,
                                   IPOIB_NEIGH_BY_PATH, neigh);
        neigh_publish(part, neigh);
        ipoib_partition_prio_link(part, neigh);
    }
    return path;
}

static void
neigh_unlink(struct ipoib_partition *part, struct ipoib_neigh *neigh)
{
    struct ipoib_path *path = neigh->path;

    if (path) {
        ipoib_partition_prio_unlink(part, neigh);
        ipoib_neigh_set_ah(part->shared.neighs, neigh, NULL, 0);
        ipoib_neigh_list_remove(part->shared.neighs, path->aux,
                                IPOIB_NEIGH_BY_PATH, neigh);
        if (ipoib_neigh_list_is_empty(path->aux)) {
            free(path->aux);
            path->aux = NULL;
        }
        ipoib_path_unref(path);
        neigh->path = NULL;
    }
}

const struct ipoib_path *
ipoib_partition_neigh_path(const struct ipoib_neigh *neigh)
{
    return neigh->path;
}

/* True if another gateway is the active one.  Then 'packet' is dropped. */
static bool
drop_on_standby(struct ipoib_partition *part, struct dp_packet *packet,
                atomic_uint64_t *counter)
{
    bool standby;

    atomic_read_relaxed(&part->shared.standby, &standby);
    if (standby) {
        ipoib_count(counter, 1);
        dp_packet_delete(packet);
    }
    return standby;
}

void
ipoib_partition_send_neigh(struct ipoib_partition *part, uint32_t sqpn,
                           struct ipoib_neigh *neigh, struct dp_packet *packet)
{
    struct ipoib_path *path;

    if (drop_on_standby(part, packet, &part->tx_stats.drop_standby)) {
        return;
    }
    /* The GID's prefix may have changed under the same GUID. */
    path = neigh->path;
    if (path && !ib_gid_equals(&path->dgid, &neigh->addr.gid)) {
        neigh_unlink(part, neigh);
    }
    path = neigh_link(part, neigh);
    if (path->ah) {
        partition_post_path(part, sqpn, packet, path->ah,
                            ipoib_addr_qpn(&neigh->addr),
                            path_mtu(part, path));
    } else {
        ipoib_path_poke(path);
        if (path->state == IPOIB_PATH_FAILED) {
            /* Nobody asks for it before the next packet after a while. */
            ipoib_count(&part->tx_stats.drop_no_path, 1);
            dp_packet_delete(packet);
            return;
        }
        struct ipoib_neigh_more *more = ipoib_neigh_more(neigh);

        wait_list_push(part, &more->wait, &more->n_wait,
                       IPOIB_MAX_WAIT_NEIGH, &part->tx_stats.drop_no_path,
                       packet, sqpn);
    }
}

void
ipoib_partition_set_group_limits(struct ipoib_partition *part)
{
    const struct ipoib_mcast_limits limits = {
        .groups = part->config.max_groups,
        .host_groups = part->config.max_host_groups,
    };

    ipoib_mcast_set_limits(part->shared.mcast, &limits);
    ipoib_snoop_set_limits(part->snoop, limits.groups / 4 * 3,
                           limits.host_groups);
}

/* True if packets to 'mgid' are sent to the broadcast group if their own is
 * not to be had: IPv6 solicited-node groups and 224.0.0.0/24.  Everybody is a
 * member, and takes them for what their IP addresses say; they are few, and
 * much depends on them. */
static bool
group_has_fallback(const struct ib_gid *mgid)
{
    static const uint8_t solicited[] = { 0, 0, 0, 0, 0, 1, 0xff };
    static const uint8_t link_scope[9];

    return (mgid->raw[2] == 0x60
            ? !memcmp(mgid->raw + 6, solicited, sizeof solicited)
            : !memcmp(mgid->raw + 6, link_scope, sizeof link_scope));
}

/* Sends 'packet' (taken), which was to go to 'mgid', to the broadcast group;
 * or drops it, and counts that by 'counter'. */
static void
group_fall_back(struct ipoib_partition *part, uint32_t sqpn,
                const struct ib_gid *mgid, struct dp_packet *packet,
                atomic_uint64_t *counter)
{
    struct ipoib_mcast_group *bcast
        = part->removing ? NULL : ipoib_mcast_broadcast(part->shared.mcast);

    if (bcast && bcast->ah && group_has_fallback(mgid)
        && !ipoib_hca_has_failed(part->hca)) {
        ipoib_count(&part->tx_stats.group_fallback, 1);
        partition_post(part, sqpn, packet, bcast->ah, IB_QPN_MULTICAST);
    } else {
        ipoib_count(counter, 1);
        dp_packet_delete(packet);
    }
}

void
ipoib_partition_send_group(struct ipoib_partition *part, uint32_t sqpn,
                           const struct ib_gid *mgid, struct dp_packet *packet)
{
    if (!drop_on_standby(part, packet, &part->tx_stats.drop_standby)) {
        ipoib_partition_send_group_always(part, sqpn, mgid, packet);
    }
}

void
ipoib_partition_send_group_always(struct ipoib_partition *part, uint32_t sqpn,
                                  const struct ib_gid *mgid,
                                  struct dp_packet *packet)
{
    struct ipoib_mcast_group *group = ipoib_mcast_find(part->shared.mcast,
                                                       mgid);

    if (!group || !group->want) {
        group = ipoib_mcast_want_send(part->shared.mcast, mgid, sqpn);
    }
    if (group && group->ah) {
        partition_post(part, sqpn, packet, group->ah, IB_QPN_MULTICAST);
    } else if (!group) {
        group_fall_back(part, sqpn, mgid, packet,
                        &part->tx_stats.drop_group_limit);
    } else if (group->backoff && group->last_status
               && group->state == IPOIB_MCAST_IDLE) {
        group_fall_back(part, sqpn, mgid, packet,
                        &part->tx_stats.drop_no_group);
    } else {
        wait_list_push(part, &group->wait, &group->n_wait,
                       IPOIB_MAX_WAIT_GROUP, &part->tx_stats.drop_no_group,
                       packet, sqpn);
    }
}

void
ipoib_partition_deliver(struct ipoib_partition *part, unsigned int rxq,
                        struct dp_packet *frame)
{
    if (!drop_on_standby(part, frame, &part->rx_stats.drop_standby)) {
        ipoib_partition_deliver_always(part, rxq, frame);
    }
}

void
ipoib_partition_deliver_always(struct ipoib_partition *part, unsigned int rxq,
                               struct dp_packet *frame)
{
    struct ipoib_msg msg = { .packet = frame };

    if (rxq >= part->n_rxq
        || !ipoib_msgq_push(part->rxqs[rxq]->from_control, &msg)) {
        ipoib_count(&part->rx_stats.drop_return_full, 1);
        dp_packet_delete(frame);
    }
}

struct ipoib_addr
ipoib_partition_host_addr(const struct ipoib_partition *part,
                          const struct ipoib_host *host)
{
    return ipoib_addr_make(host->qpn, &part->port->gid);
}

struct ipoib_addr
ipoib_partition_host_addr_for(const struct ipoib_partition *part,
                              const struct ipoib_host *host,
                              const struct ipoib_neigh *neigh)
{
    uint32_t qpn = host->qpn;

    /* Hosts behind another gateway must all know a host by the same address,
     * since that gateway takes an address that changes for a new station. */
    if (neigh && host->n_qps > 1
        && ipoib_neigh_by_lid_alone(part->shared.neighs, neigh->lid)
           == neigh->slot) {
        /* A stand-in MAC is a hash already; its first bits are fixed. */
        qpn = ipoib_hostqps_pick(host, eth_addr_to_uint64(neigh->mac));
    }
    return ipoib_addr_make(qpn, &part->port->gid);
}

void
ipoib_partition_suspect_path(struct ipoib_partition *part,
                             struct ipoib_neigh *neigh, uint16_t lid)
{
    struct ipoib_path *path = neigh->path;
    uint32_t mask;

    if (path && !ib_gid_equals(&path->dgid, &neigh->addr.gid)) {
        /* The GID's prefix has changed. */
        neigh_unlink(part, neigh);
        neigh_link(part, neigh);
        return;
    }
    atomic_read_relaxed(&part->shared.lid_mask, &mask);
    if (path && path->ah && lid && (path->dlid & mask) != lid) {
        ipoib_path_suspect(path);
    }
}


/* Paths. */

static void
neigh_removed(void *part_, struct ipoib_neigh *neigh)
{
    struct ipoib_partition *part = part_;

    neigh_clear_waiting(part, neigh);
    neigh_unlink(part, neigh);
    part->remember = true;
}

const struct ipoib_neigh_ops ipoib_partition_neigh_ops = {
    .removed = neigh_removed,
};

void
ipoib_partition_path_changed(void *part_, struct ipoib_path *path)
{
    struct ipoib_partition *part = part_;
    struct ipoib_neigh_table *neighs = part->shared.neighs;
    struct ipoib_neigh *neigh;
    uint32_t lid_mask;

    if (!path->aux) {
        return;
    }
    atomic_read_relaxed(&part->shared.lid_mask, &lid_mask);
    IPOIB_NEIGH_LIST_FOR_EACH (neigh, IPOIB_NEIGH_BY_PATH,
                               (struct ipoib_neigh_list *) path->aux,
                               neighs) {
        neigh_publish(part, neigh);
        if (path->ah) {
            /* It is known by its LID, which the SA has confirmed. */
            ipoib_neigh_set_lid(neighs, neigh, path->dlid & lid_mask);
            neigh_send_waiting(part, neigh, path);
        } else if (path->state == IPOIB_PATH_FAILED) {
            neigh_clear_waiting(part, neigh);
        }
    }
}

static void
republish_path(const struct ipoib_path *path, void *part)
{
    ipoib_partition_path_changed(part,
                                 CONST_CAST(struct ipoib_path *, path));
}

void
ipoib_partition_republish_paths(struct ipoib_partition *part)
{
    ipoib_path_for_each(part->paths, republish_path, part);
}

void
ipoib_partition_group_ready(struct ipoib_partition *part,
                            struct ipoib_mcast_group *group)
{
    wait_list_send(part, &group->wait, &group->n_wait, group->ah,
                   IB_QPN_MULTICAST, ipoib_partition_mtu(part));
}

void
ipoib_partition_group_refused(struct ipoib_partition *part,
                              struct ipoib_mcast_group *group)
{
    struct ovs_list wait = OVS_LIST_INITIALIZER(&wait);
    struct waiting_packet *wp;

    if (!group->n_wait) {
        return;
    }
    ovs_list_push_back_all(&wait, &group->wait);
    ipoib_count(&part->tx_stats.waiting, -(uint64_t) group->n_wait);
    group->n_wait = 0;
    LIST_FOR_EACH_POP (wp, node, &wait) {
        group_fall_back(part, wp->sqpn, &group->mgid, wp->packet,
                        &part->tx_stats.drop_no_group);
        free(wp);
    }
}

void
ipoib_partition_run_sends(struct ipoib_partition *part)
{
    ipoib_ctlq_run(part->ctlq, ctlq_error, part);
}
