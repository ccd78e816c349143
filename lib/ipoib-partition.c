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
#include "dp-packet.h"
#include "ipoib-control.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition);

/* Messages that are taken from one ring in one go. */
#define MSG_BUDGET 128

/* Each slice of aging looks at so many entries of each table, so often, in
 * ms. */
#define AGE_BUDGET 4096
#define AGE_INTERVAL 1000

/* Queries for the groups of hosts when the port has come up: so many, the
 * first after QUERY_DELAY ms (the bridge makes its flows then), and each time
 * twice as long after the one before. */
#define N_QUERIES 5
#define QUERY_DELAY 250

/* Announcements: about so many addresses at once, so often, in ms. */
#define ANNOUNCE_BURST 32
#define ANNOUNCE_INTERVAL 20

/* Probes for senders that nobody knows: so many a millisecond, and at once. */
#define PROBE_RATE 1
#define PROBE_BURST 1000

/* Slots of the control thread's send queue. */
#define CTLQ_SLOTS 1024

/* A host whose addresses are to be announced; it may be gone by then. */
struct ipoib_announcement {
    struct ovs_list node;       /* In ipoib_partition 'announce'. */
    struct eth_addr mac;
    uint16_t vlan;
};

static struct ipoib_partition *
partition_of_client(struct ipoib_hca_client *client)
{
    return CONTAINER_OF(client, struct ipoib_partition, client);
}


/* Hosts and groups. */

struct ipoib_host *
ipoib_partition_host_of_qpn(const struct ipoib_partition *part, uint32_t qpn)
{
    uint64_t key = qpn;
    uint32_t slot;

    ipoib_host_by_qpn(part->shared.hosts, &key, 1, &slot);
    return slot == IPOIB_SLOT_NONE
           ? NULL : ipoib_host_of_slot(part->shared.hosts, slot);
}

static void
host_removed(void *part_, struct ipoib_host *host)
{
    struct ipoib_partition *part = part_;

    ipoib_partition_note_standin(part, host, false);
    ipoib_hostqps_release(part->hostqps, part->shared.hosts, host);
    if (!part->removing) {
        ipoib_known_forget(part->known, host->mac, NULL);
        ipoib_snoop_host_gone(part->snoop, host->mac, time_msec());
    }
    part->remember = true;
}

static const struct ipoib_host_ops host_ops = {
    .removed = host_removed,
};

static void
partition_tell(struct ipoib_partition *part)
{
    if (part->ops && !part->removing) {
        part->ops->changed(part->aux);
    }
}

static bool
group_is_broadcast(const struct ipoib_partition *part,
                   const struct ipoib_mcast_group *group)
{
    return ib_gid_equals(&group->mgid, &part->shared.broadcast);
}

static void partition_set_policy(struct ipoib_partition *);

/* Recomputes whether the partition is up, and its MTU; tells if that
 * changed. */
static void
partition_update_state(struct ipoib_partition *part)
{
    struct ipoib_mcast_group *bcast;
    uint32_t mtu, old_mtu;
    const char *reason;
    bool up, was_up;

    bcast = ipoib_mcast_broadcast(part->shared.mcast);
    atomic_read_relaxed(&part->shared.mtu, &old_mtu);
    if (bcast && bcast->mtu) {
        part->group_mtu = ib_mtu_bytes(bcast->mtu) - IPOIB_HEADER_LEN;
        atomic_store_relaxed(&part->shared.group_mtu, part->group_mtu);
    }
    mtu = part->mtu_limit ? MIN(part->mtu_limit, part->group_mtu)
                          : part->group_mtu;
    atomic_read_relaxed(&part->shared.up, &was_up);
    up = ipoib_partition_is_up(part, &reason);
    if (bcast && bcast->mtu && part->mtu_limit > part->group_mtu
        && part->warned_mtu != part->group_mtu) {
        VLOG_WARN("%s: MTU %d is more than the %d that the broadcast group "
                  "takes", part->name, part->mtu_limit, part->group_mtu);
        part->warned_mtu = part->group_mtu;
    }
    if (mtu != old_mtu) {
        atomic_store_relaxed(&part->shared.mtu, mtu);
        ipoib_partition_republish_paths(part);
    }
    atomic_store_relaxed(&part->shared.up, up);
    if (up && !was_up) {
        part->n_queries = N_QUERIES;
        part->next_query = time_msec() + QUERY_DELAY;
        ipoib_partition_offload_start(part);
        ipoib_event_add(&part->events, part->name, IPOIB_EVENT_UP,
                        "up, P_Key 0x%04x, LID %u, MTU %u", part->pkey,
                        part->port->attr.lid, mtu);
    } else if (reason != part->reason && !up) {
        ipoib_event_add(&part->events, part->name, IPOIB_EVENT_DOWN,
                        "down: %s", reason);
    }
    if (up != was_up || mtu != old_mtu || reason != part->reason) {
        part->reason = reason;
        partition_tell(part);
    }
}

/* Adds the first of a row of failures to join 'group' to the events.  An SA
 * that does not answer at all is told of the broadcast group only. */
static void
group_log_failure(struct ipoib_partition *part,
                  const struct ipoib_mcast_group *group)
{
    const char *reason = ipoib_mcast_failure(group);
    struct ds s = DS_EMPTY_INITIALIZER;

    if (!reason || group->backoff != 1 || group->state == IPOIB_MCAST_LEAVING
        || (group->last_error == ETIMEDOUT
            && !group_is_broadcast(part, group))) {
        return;
    }
    ib_gid_format(&group->mgid, &s);
    ipoib_event_add(&part->events, part->name, IPOIB_EVENT_GROUP,
                    "failed to join group %s: %s", ds_cstr(&s), reason);
    ds_destroy(&s);
    partition_tell(part);       /* The status says how many. */
}

/* Notes the MLID and Q_Key of the broadcast group 'bcast', which was joined,
 * and tells if they changed. */
static void
partition_set_group_params(struct ipoib_partition *part,
                           const struct ipoib_mcast_group *bcast)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    ib_gid_format(&bcast->mgid, &s);
    if (part->group_mlid && bcast->mlid != part->group_mlid) {
        ipoib_event_add(&part->events, part->name, IPOIB_EVENT_GROUP,
                        "group %s has MLID 0x%04x (was 0x%04x)", ds_cstr(&s),
                        bcast->mlid, part->group_mlid);
    }
    if (part->group_mlid && bcast->qkey != part->ud.qkey) {
        ipoib_event_add(&part->events, part->name, IPOIB_EVENT_GROUP,
                        "group %s has Q_Key 0x%08x (was 0x%08x)", ds_cstr(&s),
                        bcast->qkey, part->ud.qkey);
    }
    ds_destroy(&s);
    part->group_mlid = bcast->mlid;
    ipoib_partition_set_qkey(part, bcast->qkey);
}

static void
group_changed(void *part_, struct ipoib_mcast_group *group)
{
    struct ipoib_partition *part = part_;

    group_log_failure(part, group);
    if (group_is_broadcast(part, group)) {
        if (group->state == IPOIB_MCAST_JOINED) {
            partition_set_group_params(part, group);
            ipoib_partition_set_path_params(part);
        }
        partition_update_state(part);
    }
    if (group->ah) {
        ipoib_partition_group_ready(part, group);
    } else if (group->last_status) {
        ipoib_partition_group_refused(part, group);
    }
}

static void
group_removed(void *part_, struct ipoib_mcast_group *group)
{
    ipoib_partition_group_refused(part_, group);
}

static const struct ipoib_mcast_ops mcast_ops = {
    .changed = group_changed,
    .removed = group_removed,
    .attach = ipoib_partition_group_attach,
    .detach = ipoib_partition_group_detach,
};

static struct ib_gid
mgid_of_ip(const struct ipoib_partition *part, const struct in6_addr *ip)
{
    ovs_be32 ip4 = in6_addr_get_mapped_ipv4(ip);

    return ip4 ? ipoib_mgid_ipv4(ip4, part->pkey, part->shared.scope)
               : ipoib_mgid_ipv6(ip, part->pkey, part->shared.scope);
}

static void
snoop_joined(void *part_, const struct in6_addr *ip)
{
    struct ipoib_partition *part = part_;
    struct ib_gid mgid = mgid_of_ip(part, ip);

    ipoib_mcast_want(part->shared.mcast, &mgid, IPOIB_MCAST_RECV);
}

static void
snoop_left(void *part_, const struct in6_addr *ip)
{
    struct ipoib_partition *part = part_;
    struct ib_gid mgid = mgid_of_ip(part, ip);

    ipoib_mcast_unwant(part->shared.mcast, &mgid);
}

static void
snoop_ask(void *part_, const struct in6_addr *ip)
{
    struct ipoib_partition *part = part_;
    ovs_be32 ip4 = in6_addr_get_mapped_ipv4(ip);
    struct eth_addr mac = part->shared.mac;

    ipoib_count(&part->rx_stats.own, 1);
    ipoib_partition_deliver(part, 0,
                            ip4 ? ipoib_snoop_compose_igmp_query(mac, ip4)
                            : ipoib_snoop_compose_mld_query(mac, ip));
}

static const struct ipoib_snoop_ops snoop_ops = {
    .joined = snoop_joined,
    .left = snoop_left,
    .ask = snoop_ask,
};


/* Announcements. */

void
ipoib_partition_announce(struct ipoib_partition *part,
                         struct ipoib_host *host)
{
    if (host->n_ips && !host->announcing) {
        struct ipoib_announcement *a = xmalloc(sizeof *a);

        host->announcing = true;
        a->mac = host->mac;
        a->vlan = host->vlan;
        ovs_list_push_back(&part->announce, &a->node);
    }
}

static void
announce_host(struct ipoib_host *host, void *part)
{
    ipoib_partition_announce(part, host);
}

void
ipoib_partition_announce_all(struct ipoib_partition *part)
{
    size_t pos = 0;

    ipoib_host_walk(part->shared.hosts, &pos, SIZE_MAX, announce_host, part);
}

/* Announces all addresses of a host.  Returns how many there are. */
static size_t
partition_announce_now(struct ipoib_partition *part, struct ipoib_host *host)
{
    struct ipoib_host_ip *hip;

    host->announcing = false;
    LIST_FOR_EACH (hip, node, &host->ips) {
        ipoib_control_announce_host(part, host, &hip->ip);
    }
    return host->n_ips;
}

static void
partition_run_announcements(struct ipoib_partition *part, long long int now)
{
    size_t n = 0;
    bool up, standby;

    atomic_read_relaxed(&part->shared.up, &up);
    atomic_read_relaxed(&part->shared.standby, &standby);
    if (!up || standby || now < part->next_announce) {
        return;
    }
    while (n < ANNOUNCE_BURST && !ovs_list_is_empty(&part->announce)) {
        struct ipoib_announcement *a
            = CONTAINER_OF(ovs_list_pop_front(&part->announce),
                           struct ipoib_announcement, node);
        struct ipoib_host *host = ipoib_host_find(part->shared.hosts, a->mac,
                                                  a->vlan);

        if (host && !ipoib_partition_host_is_ours(part, host->mac)) {
            host->announcing = false;
        }
        if (host && host->announcing) {
            n += partition_announce_now(part, host);
        }
        free(a);
    }
    part->next_announce = now + ANNOUNCE_INTERVAL;
}


/* Parameters and events. */

void
ipoib_partition_set_path_params(struct ipoib_partition *part)
{
    const struct ipoib_hca_port *port = part->port;
    struct ipoib_mcast_group *bcast;
    struct ipoib_path_params params;

    bcast = ipoib_mcast_broadcast(part->shared.mcast);
    params = (struct ipoib_path_params) {
        .sgid = port->gid,
        .port = port->num,
        .lid = port->attr.lid,
        .lmc = port->attr.lmc,
        .pkey = part->pkey,
        .tclass = bcast ? bcast->tclass : 0,
        .needs_grh = port->needs_grh,
        .port_mtu = port->attr.active_mtu,
    };
    ipoib_path_table_set_params(part->paths, &params);
    ipoib_partition_prio_set_params(part, &params);
}

static void
partition_set_mcast_params(struct ipoib_partition *part)
{
    const struct ipoib_hca_port *port = part->port;
    struct ipoib_mcast_params params = {
        .port_gid = port->gid,
        .port = port->num,
        .pkey = part->pkey,
        .lid = port->attr.lid,
        .port_mtu = port->attr.active_mtu,
        .active = port->attr.state == IBV_PORT_ACTIVE
                  && part->pkey_index >= 0 && part->n_rxq && !part->hca->fatal,
    };

    ipoib_mcast_set_params(part->shared.mcast, &params);
}

static void
partition_find_pkey(struct ipoib_partition *part)
{
    int index = ipoib_hca_port_find_pkey(part->port, part->pkey);

    part->pkey_index = index;
    if (index >= 0 && index != part->ud.pkey_index) {
        part->ud.pkey_index = index;
        ipoib_partition_restart_qps(part);
    }
}

static void
partition_set_addresses(struct ipoib_partition *part)
{
    const struct ipoib_hca_port *port = part->port;

    atomic_store_relaxed(&part->shared.lid, port->attr.lid);
    atomic_store_relaxed(&part->shared.lid_mask,
                         0xffffu & ~((1u << port->attr.lmc) - 1));
    if (!ib_gid_equals(&part->shared.gid, &port->gid)) {
        /* Not without need: the data path reads it meanwhile. */
        part->shared.gid = port->gid;
    }
}

static void
partition_port_changed(struct ipoib_hca_client *client, unsigned int changes)
{
    struct ipoib_partition *part = partition_of_client(client);

    VLOG_DBG("%s: port changed (0x%x)", part->name, changes);
    if (changes & IPOIB_PORT_PKEYS) {
        partition_find_pkey(part);
    }
    partition_set_addresses(part);
    partition_set_mcast_params(part);
    ipoib_partition_set_path_params(part);
    if (changes & (IPOIB_PORT_REREGISTER | IPOIB_PORT_SM | IPOIB_PORT_LID
                   | IPOIB_PORT_STATE | IPOIB_PORT_GID)
        && part->port->attr.state == IBV_PORT_ACTIVE) {
        ipoib_mcast_rejoin_all(part->shared.mcast);
        ipoib_path_refresh_all(part->paths);
        ipoib_partition_prio_refresh(part);
    }
    if (changes & (IPOIB_PORT_GID | IPOIB_PORT_LID)) {
        /* Neighbours know our hosts by the old ones. */
        ipoib_partition_announce_all(part);
    }
    partition_update_state(part);
    partition_tell(part);
}

static void
partition_qp_event(struct ipoib_hca_client *client, enum ibv_event_type type,
                   uint32_t qpn)
{
    ipoib_partition_qp_event(partition_of_client(client), type, qpn);
}

static void
partition_trap(struct ipoib_hca_client *client, uint16_t trap,
               const struct ib_gid *mgid)
{
    ipoib_partition_born_trap(partition_of_client(client), trap, mgid);
}

void
ipoib_partition_update(struct ipoib_partition *part)
{
    partition_set_policy(part);
    partition_set_mcast_params(part);
    partition_update_state(part);
    ipoib_hca_kick(part->hca);
}


/* The control thread. */

static bool
partition_run_ring(struct ipoib_partition *part, struct ipoib_msgq *ring,
                   long long int now)
{
    struct ipoib_msg msg;

    for (int i = 0; i < MSG_BUDGET; i++) {
        if (!ipoib_msgq_pop(ring, &msg)) {
            return false;
        }
        if (ipoib_hca_has_failed(part->hca)) {
            ipoib_msg_drop(&msg, &part->rx_stats.drop_gone,
                           &part->tx_stats.drop_gone);
        } else {
            ipoib_control_message(part, &msg, now);
        }
    }
    return true;
}

static bool
partition_run_rings(struct ipoib_partition *part, long long int now)
{
    bool more = false;

    for (unsigned int i = 0; i < part->n_rxq; i++) {
        more |= partition_run_ring(part, part->rxqs[i]->to_control, now);
    }
    for (unsigned int i = 0; i < part->n_txq; i++) {
        more |= partition_run_ring(part, part->txqs[i]->to_control, now);
    }
    return more;
}

static void
partition_run_aging(struct ipoib_partition *part, long long int now)
{
    if (now >= part->next_age) {
        part->next_age = now + AGE_INTERVAL;
        ipoib_neigh_age(part->shared.neighs, now, IPOIB_NEIGH_IDLE,
                        AGE_BUDGET);
        ipoib_host_age(part->shared.hosts, now, IPOIB_HOST_IDLE, AGE_BUDGET);
        ipoib_partition_watch(part, now);
    }
}

/* Hosts that have left for another port: the bond that both belong to has
 * another active member. */
static void
partition_run_leavers(struct ipoib_partition *part)
{
    struct eth_addr mac;
    long long int when;

    while (ipoib_known_left(part->known, &mac, &when)) {
        struct ipoib_host *host = ipoib_host_find(part->shared.hosts, mac, 0);

        if (host && host->heard <= when) {
            ipoib_host_remove(part->shared.hosts, host);
        }
    }
}

/* Hosts that were on the bridge before the port came up have told of their
 * groups when nobody listened, and so of their solicited-node groups: without
 * asking them they could not be reached by IPv6 until they speak. */
static void
partition_run_queries(struct ipoib_partition *part, long long int now)
{
    if (part->n_queries && now >= part->next_query) {
        struct eth_addr mac = part->shared.mac;

        part->n_queries--;
        part->next_query = now + (QUERY_DELAY
                                  << (N_QUERIES - part->n_queries));
        ipoib_count(&part->rx_stats.own, 2);
        ipoib_partition_deliver(part, 0,
                                ipoib_snoop_compose_igmp_query(mac, 0));
        ipoib_partition_deliver(part, 0,
                                ipoib_snoop_compose_mld_query(mac, NULL));
        if (!part->n_queries) {
            /* Earlier ones may not have reached everybody. */
            const struct ipoib_query query = { .general = true,
                                               .sourceless = true,
                                               .max_resp = 1000 };

            ipoib_snoop_query(part->snoop, false, &query, false, now);
            ipoib_snoop_query(part->snoop, true, &query, false, now);
        }
    }
}

/* Tells the data path the time. */
static void
partition_run_clock(struct ipoib_partition *part, long long int now)
{
    uint32_t before;

    atomic_read_relaxed(&part->shared.now, &before);
    if (before != now / 1000) {
        atomic_store_relaxed(&part->shared.now, now / 1000);
    }
}

static void
partition_wait_clock(const struct ipoib_partition *part)
{
    uint32_t now;

    atomic_read_relaxed(&CONST_CAST(struct ipoib_partition *, part)
                            ->shared.now, &now);
    poll_timer_wait_until((now + 1LL) * 1000);
}

static bool
partition_run(struct ipoib_hca_client *client, long long int now)
{
    struct ipoib_partition *part = partition_of_client(client);
    bool more;

    partition_run_clock(part, now);
    if (ipoib_hca_has_failed(part->hca)) {
        /* Nothing but to wait for the end. */
        return partition_run_rings(part, now);
    }
    ipoib_partition_run_sends(part);
    ipoib_partition_run_txqs(part);
    more = partition_run_rings(part, now);
    ipoib_snoop_run(part->snoop, now);
    ipoib_partition_born_run(part, now);
    ipoib_mcast_run(part->shared.mcast, now);
    ipoib_path_table_run(part->paths, now);
    ipoib_partition_prio_run(part, now);
    ipoib_hostqps_run(part->hostqps, now);
    partition_run_aging(part, now);
    partition_run_leavers(part);
    ipoib_partition_run_peers(part, now);
    partition_run_announcements(part, now);
    partition_run_queries(part, now);
    if (ipoib_partition_offload_run(part)) {
        partition_tell(part);
    }
    return more;
}

static void
partition_wait(struct ipoib_hca_client *client)
{
    struct ipoib_partition *part = partition_of_client(client);
    bool up, standby;

    if (ipoib_hca_has_failed(part->hca)) {
        return;
    }
    ipoib_partition_wait_txqs(part);
    ipoib_snoop_wait(part->snoop);
    ipoib_partition_born_wait(part);
    ipoib_mcast_wait(part->shared.mcast);
    ipoib_path_table_wait(part->paths);
    ipoib_partition_prio_wait(part);
    ipoib_hostqps_wait(part->hostqps);
    ipoib_partition_wait_peers(part);
    ipoib_partition_offload_wait(part);
    poll_timer_wait_until(part->next_age);
    partition_wait_clock(part);
    /* A partition that is down has nobody to announce to, and one on standby
     * nothing to say. */
    atomic_read_relaxed(&part->shared.up, &up);
    atomic_read_relaxed(&part->shared.standby, &standby);
    if (up && !standby && !ovs_list_is_empty(&part->announce)) {
        poll_timer_wait_until(part->next_announce);
    }
    if (part->n_queries) {
        poll_timer_wait_until(part->next_query);
    }
}

static bool
partition_pending(struct ipoib_hca_client *client)
{
    struct ipoib_partition *part = partition_of_client(client);

    for (unsigned int i = 0; i < part->n_rxq; i++) {
        if (!ipoib_msgq_is_empty(part->rxqs[i]->to_control)) {
            return true;
        }
    }
    for (unsigned int i = 0; i < part->n_txq; i++) {
        if (!ipoib_msgq_is_empty(part->txqs[i]->to_control)) {
            return true;
        }
    }
    return ipoib_partition_txqs_pending(part);
}

static const struct ipoib_hca_client_ops client_ops = {
    .run = partition_run,
    .wait = partition_wait,
    .pending = partition_pending,
    .port_changed = partition_port_changed,
    .qp_event = partition_qp_event,
    .trap = partition_trap,
};


/* Life. */

/* Groups of link scope that stations listen to without reporting them. */
static void
partition_join_link_scope(struct ipoib_partition *part)
{
    static const uint8_t last4[] = { 1, 2, 5, 6, 13, 18, 22, 251, 252 };
    static const uint32_t last6[] = { 0x1, 0x2, 0x5, 0x6, 0xd, 0x12, 0x16,
                                      0xfb, 0x10002, 0x10003 };

    for (size_t i = 0; i < ARRAY_SIZE(last4); i++) {
        struct ib_gid mgid = ipoib_mgid_ipv4(htonl(0xe0000000 | last4[i]),
                                             part->pkey, part->shared.scope);

        ipoib_mcast_want(part->shared.mcast, &mgid, IPOIB_MCAST_RECV);
    }
    for (size_t i = 0; i < ARRAY_SIZE(last6); i++) {
        struct in6_addr ip = { .s6_addr = { 0xff, 0x02 } };
        ovs_be32 last = htonl(last6[i]);
        struct ib_gid mgid;

        memcpy(&ip.s6_addr[12], &last, sizeof last);
        mgid = ipoib_mgid_ipv6(&ip, part->pkey, part->shared.scope);
        ipoib_mcast_want(part->shared.mcast, &mgid, IPOIB_MCAST_RECV);
    }
}

static void
partition_init_shared(struct ipoib_partition *part)
{
    struct ipoib_shared *shared = &part->shared;

    shared->verbs = part->hca->verbs;
    shared->waker = &part->hca->waker;
    shared->mac = ipoib_port_mac(part->port->guid, part->pkey);
    shared->pkey = part->pkey;
    shared->scope = 2;
    shared->broadcast = ipoib_mgid_broadcast(part->pkey, shared->scope);
    shared->own_qpns = ipoib_table_create(16);
    atomic_init(&shared->qkey, 0);
    atomic_init(&shared->mtu, IPOIB_MTU_DEFAULT);
    atomic_init(&shared->group_mtu, IPOIB_MTU_DEFAULT);
    atomic_init(&shared->eth_mtu, 0);
    atomic_init(&shared->clamp_mss, false);
    atomic_init(&shared->now, time_now());
    atomic_init(&shared->up, false);
    atomic_init(&shared->standby, false);
    ipoib_partition_offload_init(part);
    shared->share = &part->peers.share;
    part->standins = ipoib_table_create(16);
    ipoib_peers_init(&part->peers, part->pkey);
    part->peers.gid = part->port->gid;
    partition_set_addresses(part);
    shared->neighs = ipoib_neigh_table_create(part->pkey, SIZE_MAX,
                                              &ipoib_partition_neigh_ops,
                                              part);
    shared->hosts = ipoib_host_table_create(IPOIB_MAX_HOSTS, &host_ops, part);
    shared->mcast = ipoib_mcast_create(part->hca->verbs, part->hca->pd,
                                       part->port->sa, part->hca->reaper,
                                       &mcast_ops, part);
}

int
ipoib_partition_create(struct ipoib_hca_port *port, uint16_t pkey,
                       const char *name, const struct ipoib_partition_ops *ops,
                       void *aux, struct ipoib_partition **partp)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_hca *hca = port->hca;
    struct ipoib_partition *part = xzalloc(sizeof *part);

    part->client.ops = &client_ops;
    part->hca = hca;
    part->port = port;
    part->name = xstrdup(name);
    part->ops = ops;
    part->aux = aux;
    part->pkey = pkey | IB_PKEY_FULL;
    part->pkey_index = ipoib_hca_port_find_pkey(port, part->pkey);
    part->ud = (struct ipoib_ud_params) {
        .port = port->num,
        .pkey_index = MAX(part->pkey_index, 0),
    };
    part->group_mtu = IPOIB_MTU_DEFAULT;
    ipoib_events_init(&part->events);
    ovs_list_init(&part->announce);
    token_bucket_init(&part->probes, PROBE_RATE, PROBE_BURST);
    part->ctlq = ipoib_ctlq_create(hca->verbs, hca->ctx, hca->pd, CTLQ_SLOTS,
                                   ib_mtu_bytes(port->attr.max_mtu));
    if (!part->ctlq) {
        int error = errno;

        free(part->name);
        free(part);
        *partp = NULL;
        return error;
    }
    partition_init_shared(part);
    part->hostqps = ipoib_hostqps_create(&part->shared, part->ctlq);
    part->paths = ipoib_path_table_create(hca->verbs, hca->pd, port->sa,
                                          hca->reaper,
                                          ipoib_partition_path_changed, part);
    part->snoop = ipoib_snoop_create(&snoop_ops, part);
    part->known = ipoib_known_create(part->pkey);
    partition_join_link_scope(part);
    ipoib_partition_set_path_params(part);
    ipoib_partition_born_init(part);
    ipoib_hca_port_add_client(port, &part->client);
    *partp = part;
    return 0;
}

void
ipoib_partition_destroy(struct ipoib_partition *part,
                        struct ipoib_rx_stats *rx, struct ipoib_tx_stats *tx)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_announcement *a;

    if (!part) {
        return;
    }
    part->removing = true;
    ipoib_partition_leave_peers(part);
    ipoib_partition_born_destroy(part);
    ipoib_hca_port_remove_client(part->port, &part->client);
    ipoib_mcast_leave_all(part->shared.mcast);
    ipoib_sa_run(part->port->sa, time_msec());

    ipoib_neigh_table_destroy(part->shared.neighs);
    ipoib_path_table_destroy(part->paths);
    ipoib_partition_prio_destroy(part);
    ipoib_partition_offload_destroy(part);
    ipoib_partition_destroy_queues(part);
    ipoib_host_table_destroy(part->shared.hosts);
    ipoib_hostqps_destroy(part->hostqps);
    ipoib_mcast_destroy(part->shared.mcast);
    ipoib_ctlq_destroy(part->ctlq);
    ipoib_snoop_destroy(part->snoop);
    ipoib_known_destroy(part->known);
    ipoib_table_destroy(part->standins);
    ipoib_peers_destroy(&part->peers);
    ipoib_table_destroy(part->shared.own_qpns);
    LIST_FOR_EACH_POP (a, node, &part->announce) {
        free(a);
    }
    ipoib_events_destroy(&part->events);
    free(part->sync.changed);
    if (rx && tx) {
        ipoib_rx_stats_add(rx, &part->rx_stats);
        ipoib_tx_stats_add(tx, &part->tx_stats);
    }
    free(part->name);
    free(part);
}

bool
ipoib_partition_is_up(const struct ipoib_partition *part, const char **reason)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    const struct ipoib_hca_port *port = part->port;

    *reason = NULL;
    if (part->hca->fatal) {
        *reason = "the device has failed";
    } else if (port->attr.state == IBV_PORT_DOWN) {
        *reason = "the HCA port is down";
    } else if (port->attr.state != IBV_PORT_ACTIVE) {
        *reason = "the subnet manager has not brought the HCA port up";
    } else if (part->pkey_index < 0) {
        *reason = "the P_Key is not in the table of the HCA port";
    } else if (!part->n_rxq) {
        *reason = "the port is not configured";
    } else if (!ipoib_mcast_broadcast(part->shared.mcast)) {
        /* Once it is joined, packets flow with or without an SA. */
        *reason = (!port->transport
                   ? "there is no way to ask the subnet administrator"
                   : !port->attr.sm_lid
                   ? "the subnet has no subnet manager"
                   : "the broadcast group is not joined");
    }
    return !*reason;
}

/* Tells the groups what options:ib-leave and the kernel's devices make of
 * leaving. */
static void
partition_set_policy(struct ipoib_partition *part)
{
    enum ipoib_leave leave = part->config.leave;
    bool shared = part->kernel.name[0] != '\0';
    struct ipoib_mcast_policy policy = {
        .leave = leave == IPOIB_LEAVE_ALWAYS
                 || (leave == IPOIB_LEAVE_AUTO && !shared),
        .leave_broadcast = leave == IPOIB_LEAVE_ALWAYS,
        .refresh = shared,
    };

    ipoib_mcast_set_policy(part->shared.mcast, &policy);
}

void
ipoib_partition_set_kernel(struct ipoib_partition *part,
                           const struct ipoib_kernel_netdev *netdev)
{
    struct ipoib_kernel_netdev old = part->kernel;

    if (netdev->hash == old.hash) {
        return;
    }
    part->kernel = *netdev;
    partition_set_policy(part);
    if (netdev->name[0]) {
        ipoib_event_add(&part->events, part->name, IPOIB_EVENT_GROUP,
                        "the kernel's %s is in the same partition: groups are "
                        "joined again every minute", netdev->name);
    } else if (old.name[0]) {
        ipoib_event_add(&part->events, part->name, IPOIB_EVENT_GROUP,
                        "the kernel's %s is no longer in the same partition",
                        old.name);
    }
    if (part->port->attr.state == IBV_PORT_ACTIVE) {
        /* It may just have left what we had joined. */
        ipoib_mcast_rejoin_all(part->shared.mcast);
        ipoib_hca_kick(part->hca);
    }
}

static void
count_refused(const struct ipoib_mcast_group *group, void *n_)
{
    size_t *n = n_;

    *n += group->backoff && ipoib_mcast_failure(group);
}

size_t
ipoib_partition_n_refused(const struct ipoib_partition *part)
{
    size_t n = 0;

    ipoib_mcast_for_each(part->shared.mcast, count_refused, &n);
    return n;
}

void
ipoib_partition_limit_mtu(struct ipoib_partition *part, int limit)
{
    part->mtu_limit = limit;
    partition_update_state(part);
}

int
ipoib_partition_mtu(const struct ipoib_partition *part)
{
    uint32_t mtu;

    atomic_read_relaxed(
        &CONST_CAST(struct ipoib_partition *, part)->shared.mtu, &mtu);
    return mtu;
}
