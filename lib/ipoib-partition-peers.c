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
#include "dp-packet.h"
#include "ipoib-control.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_peers);

/* Records: what the active gateway knows, for those on standby.  Each is a
 * header, the 6 bytes of a host's MAC or the 20 of a neighbour's address, and
 * IP addresses of 16 bytes, oldest first. */
enum { RECORD_HOST = 1, RECORD_NEIGH = 2 };
struct record {
    uint8_t type;
    uint8_t n_ips;
    uint8_t is_router;
    uint8_t reserved;
};
#define RECORD_MAX_IPS 16
#define RECORD_MAX_LEN (sizeof(struct record) + 20 + 16 * RECORD_MAX_IPS)
#define MAX_RECORDS_LEN 1300    /* In one frame. */
#define FRAMES 8                /* At most, for each beacon. */

/* Announcements of neighbours on Ethernet: so many at once, so often. */
#define ANNOUNCE_BURST 32
#define ANNOUNCE_INTERVAL 20

static const struct eth_addr peer_mac = IPOIB_PEER_MAC;


/* What the partition asks. */

/* True if a packet to a group from port 'gid' is to be delivered here. */
bool
ipoib_partition_neigh_is_ours(const struct ipoib_partition *part,
                              const struct ib_gid *gid)
{
    return ipoib_share_is_ours(&part->peers.share, ib_gid_guid(gid));
}

/* True if what the host 'mac' sends to all is to be sent here. */
bool
ipoib_partition_host_is_ours(const struct ipoib_partition *part,
                             struct eth_addr mac)
{
    return ipoib_share_is_ours(&part->peers.share, eth_addr_to_uint64(mac));
}

/* 'mac' sends on Ethernet.  Returns true if it is a stand-in MAC that another
 * gateway gives.  If it stands for one of our own hosts, another gateway does
 * not know that we are here. */
bool
ipoib_partition_is_peers_mac(struct ipoib_partition *part,
                             struct eth_addr mac, long long int now)
{
    if (ipoib_table_lookup(part->standins, eth_addr_to_uint64(mac))
        != IPOIB_SLOT_NONE) {
        if (!ipoib_peers_talk(&part->peers)
            && (part->peers.mode != IPOIB_PEERS_OFF
                || !part->peers.n_loops)) {
            VLOG_WARN("%s: another gateway connects the same partition with "
                      "the same Ethernet; %s", part->name,
                      part->peers.mode == IPOIB_PEERS_OFF
                      ? "this is a loop" : "only one of them will forward");
        }
        ipoib_peers_loop(&part->peers, now);
        return true;
    }
    return ipoib_share_has_mac(&part->peers.share, mac);
}

static struct eth_addr
host_standin(const struct ipoib_partition *part, uint32_t qpn)
{
    struct ipoib_addr addr = ipoib_addr_make(qpn, &part->port->gid);

    return ipoib_standin_mac(part->pkey, &addr, 0);
}

/* 'host' has another QPN, or goes ('here' is false). */
void
ipoib_partition_note_standin(struct ipoib_partition *part,
                             const struct ipoib_host *host, bool here)
{
    uint64_t mac = eth_addr_to_uint64(host_standin(part, host->qpn));

    if (here) {
        ipoib_table_insert(part->standins, mac, host->slot);
    } else if (ipoib_table_lookup(part->standins, mac) == host->slot) {
        ipoib_table_remove(part->standins, mac);
    }
}


/* Talking. */

static void
put_record(struct dp_packet *packet, uint8_t type, bool is_router,
           const void *id, size_t id_len, const struct in6_addr ips[],
           size_t n_ips)
{
    struct record record = {
        .type = type,
        .n_ips = n_ips,
        .is_router = is_router,
    };

    dp_packet_put(packet, &record, sizeof record);
    dp_packet_put(packet, id, id_len);
    dp_packet_put(packet, ips, n_ips * sizeof *ips);
}

struct sync {
    struct dp_packet *packet;
    size_t n;
};

static void
sync_host(struct ipoib_host *host, void *sync_)
{
    struct in6_addr ips[RECORD_MAX_IPS];
    struct sync *sync = sync_;
    struct ipoib_host_ip *hip;
    size_t n = 0;

    LIST_FOR_EACH (hip, node, &host->ips) {
        if (n < RECORD_MAX_IPS) {
            ips[RECORD_MAX_IPS - ++n] = hip->ip;
        }
    }
    put_record(sync->packet, RECORD_HOST, host->is_router, &host->mac,
               sizeof host->mac, &ips[RECORD_MAX_IPS - n], n);
    sync->n++;
}

static void
sync_neigh(struct ipoib_neigh *neigh, void *sync_)
{
    struct in6_addr ips[RECORD_MAX_IPS];
    struct sync *sync = sync_;
    size_t n = MIN(ipoib_neigh_n_ips(neigh), RECORD_MAX_IPS);

    for (size_t i = 0; i < n; i++) {
        ips[RECORD_MAX_IPS - 1 - i] = *ipoib_neigh_ip(neigh, i);
    }
    put_record(sync->packet, RECORD_NEIGH, neigh->is_router, &neigh->addr,
               sizeof neigh->addr, &ips[RECORD_MAX_IPS - n], n);
    sync->n++;
}

/* Adds records: at first of what has changed, then round the tables.  Returns
 * false after the end of a round. */
static bool
put_records(struct ipoib_partition *part, struct sync *sync)
{
    struct ipoib_partition_sync *state = &part->sync;

    while (dp_packet_size(sync->packet) + RECORD_MAX_LEN < MAX_RECORDS_LEN) {
        if (state->n_changed) {
            struct ipoib_sync_change *change
                = &state->changed[--state->n_changed];
            struct ipoib_neigh *neigh;
            struct ipoib_host *host;

            if (change->is_host) {
                host = ipoib_host_find(part->shared.hosts, change->mac, 0);
                if (host) {
                    sync_host(host, sync);
                }
            } else {
                neigh = ipoib_neigh_find_mac(part->shared.neighs,
                                             change->mac);
                if (neigh) {
                    sync_neigh(neigh, sync);
                }
            }
        } else if (state->hosts_done) {
            if (!ipoib_neigh_walk(part->shared.neighs, &state->pos, 1,
                                  sync_neigh, sync)) {
                state->hosts_done = false;
                state->pos = 0;
                return false;
            }
        } else if (!ipoib_host_walk(part->shared.hosts, &state->pos, 1,
                                    sync_host, sync)) {
            state->hosts_done = true;
            state->pos = 0;
        }
    }
    return true;
}

/* 'mac' is that of a host or neighbour of which something new was learned. */
void
ipoib_partition_note_change(struct ipoib_partition *part, bool is_host,
                            struct eth_addr mac)
{
    struct ipoib_partition_sync *state = &part->sync;

    if (part->peers.n_present && state->n_changed < IPOIB_MAX_CHANGES) {
        if (state->n_changed == state->allocated_changed) {
            state->changed = x2nrealloc(state->changed,
                                        &state->allocated_changed,
                                        sizeof *state->changed);
        }
        state->changed[state->n_changed].is_host = is_host;
        state->changed[state->n_changed++].mac = mac;
    }
}

/* Sends a beacon on Ethernet, with records if 'with_records'.  Returns false
 * if there are no more of them for now. */
static bool
send_on_ethernet(struct ipoib_partition *part, bool leaving,
                 bool with_records)
{
    struct dp_packet *packet = dp_packet_new_with_headroom(1500, 64);
    struct ipoib_beacon *beacon;
    struct sync sync = { .packet = packet };
    struct eth_header *eth;
    size_t size;
    bool more = false;

    eth = dp_packet_put_zeros(packet, sizeof *eth);
    eth->eth_dst = peer_mac;
    eth->eth_src = part->shared.mac;
    eth->eth_type = htons(IPOIB_PEER_TYPE);
    beacon = dp_packet_put_zeros(packet, sizeof *beacon);
    ipoib_peers_compose(&part->peers, leaving, beacon);
    if (with_records) {
        more = put_records(part, &sync);
        beacon = (void *) ((uint8_t *) dp_packet_data(packet) + sizeof *eth);
        beacon->n_records = htons(sync.n);
    }
    size = dp_packet_size(packet);
    if (size < ETH_TOTAL_MIN) {
        dp_packet_put_zeros(packet, ETH_TOTAL_MIN - size);
    }
    ipoib_count(&part->rx_stats.own, 1);
    ipoib_partition_deliver_always(part, 0, packet);
    return more;
}

static void
send_on_fabric(struct ipoib_partition *part, bool leaving)
{
    struct dp_packet *packet = dp_packet_new_with_headroom(
        IPOIB_HEADER_LEN + sizeof(struct ipoib_beacon), 64);
    struct ipoib_header *header = dp_packet_put_zeros(packet, sizeof *header);

    header->type = htons(IPOIB_PEER_TYPE);
    ipoib_peers_compose(&part->peers, leaving,
                        dp_packet_put_zeros(packet,
                                            sizeof(struct ipoib_beacon)));
    ipoib_count(&part->tx_stats.own, 1);
    ipoib_partition_send_group_always(part, 0, &part->shared.broadcast,
                                      packet);
}

static void
peers_talk(struct ipoib_partition *part)
{
    bool with_records = (part->peers.n_present
                         && (part->peers.role == IPOIB_ROLE_ACTIVE
                             || part->peers.role == IPOIB_ROLE_SHARING));

    send_on_fabric(part, false);
    for (int i = 0; i < FRAMES; i++) {
        if (!send_on_ethernet(part, false, with_records)) {
            break;
        }
    }
}


/* Listening. */

/* Learns from the record 'record' of 'peer'.  Who is on standby knows nothing
 * better than the active one; those that share know most by themselves. */
static void
learn_record(struct ipoib_partition *part, const struct record *record,
             const uint8_t *id, const struct in6_addr ips[],
             long long int now)
{
    bool sharing = part->peers.role == IPOIB_ROLE_SHARING;
    struct ipoib_addr addr;
    struct eth_addr mac;

    memcpy(&mac, id, sizeof mac);
    if (record->type == RECORD_NEIGH) {
        memcpy(&addr, id, sizeof addr);
    }
    for (size_t i = 0; i <= record->n_ips; i++) {
        const struct in6_addr *ip = i < record->n_ips ? &ips[i] : NULL;

        if (ip && sharing
            && (ipoib_host_find_ip(part->shared.hosts, ip)
                || ipoib_neigh_find_ip(part->shared.neighs, ip))) {
            continue;
        }
        if (!ip && record->n_ips) {
            break;
        }
        if (record->type == RECORD_HOST) {
            struct ipoib_host *host = ipoib_control_learn_host(part, mac, ip,
                                                               now);

            if (host && record->is_router) {
                ipoib_host_set_router(part->shared.hosts, host, true);
            }
        } else {
            struct ipoib_neigh *neigh = ipoib_control_learn_neigh(
                part, &addr, ip, 0, now);

            if (neigh && record->is_router) {
                neigh->is_router = true;
            }
        }
    }
}

static void
learn_records(struct ipoib_partition *part, const uint8_t *data, size_t len,
              unsigned int n, long long int now)
{
    while (n--) {
        struct in6_addr ips[RECORD_MAX_IPS];
        struct record record;
        size_t id_len, size;

        if (len < sizeof record) {
            return;
        }
        memcpy(&record, data, sizeof record);
        id_len = record.type == RECORD_HOST ? ETH_ADDR_LEN : IPOIB_ADDR_LEN;
        size = sizeof record + id_len + record.n_ips * sizeof *ips;
        if ((record.type != RECORD_HOST && record.type != RECORD_NEIGH)
            || record.n_ips > RECORD_MAX_IPS || len < size) {
            return;
        }
        memcpy(ips, data + sizeof record + id_len,
               record.n_ips * sizeof *ips);
        learn_record(part, &record, data + sizeof record, ips, now);
        data += size;
        len -= size;
    }
}

void
ipoib_partition_peer_message(struct ipoib_partition *part,
                             struct ipoib_msg *msg, long long int now)
{
    bool ethernet = msg->type == IPOIB_MSG_TX_PEER;
    size_t ofs = ethernet ? ETH_HEADER_LEN : IPOIB_HEADER_LEN;
    const uint8_t *data = dp_packet_data(msg->packet);
    size_t len = dp_packet_size(msg->packet);
    const struct ipoib_beacon *beacon;
    const struct ipoib_peer *peer;
    bool talked = ipoib_peers_talk(&part->peers);

    if (len < ofs + sizeof *beacon) {
        ipoib_count(ethernet ? &part->tx_stats.drop_short
                    : &part->rx_stats.drop_short, 1);
        return;
    }
    data += ofs;
    len -= ofs;
    beacon = ALIGNED_CAST(const struct ipoib_beacon *, data);
    if (!ethernet
        && ib_gid_guid(&msg->sgid) != ib_gid_guid(&beacon->gid)) {
        ipoib_count(&part->rx_stats.spoof, 1);
        ipoib_count(&part->rx_stats.drop_spoof, 1);
        return;
    }
    ipoib_count(ethernet ? &part->tx_stats.taken : &part->rx_stats.taken, 1);
    peer = ipoib_peers_receive(&part->peers, data, len, ethernet, now);
    if (!talked && ipoib_peers_talk(&part->peers)) {
        VLOG_WARN("%s: another gateway says that it connects the same "
                  "partition with the same Ethernet; only one of them will "
                  "forward", part->name);
    }
    if (peer && ethernet && peer->present
        && ((part->peers.role == IPOIB_ROLE_STANDBY
             && peer->flags & IPOIB_BEACON_ACTIVE)
            || part->peers.role == IPOIB_ROLE_SHARING)) {
        learn_records(part, data + sizeof *beacon, len - sizeof *beacon,
                      ntohs(beacon->n_records), now);
    }
}


/* Roles. */

/* A peer's hosts are on our Ethernet as well: they are no neighbours. */
static void
forget_peer(struct ipoib_neigh *neigh, void *part_)
{
    struct ipoib_partition *part = part_;

    if (ipoib_peers_has(&part->peers, &neigh->addr.gid)) {
        ipoib_neigh_remove(part->shared.neighs, neigh);
    }
}

/* What it names after itself is no host. */
static void
forget_standin(struct ipoib_host *host, void *part_)
{
    struct ipoib_partition *part = part_;

    if (ipoib_share_has_mac(&part->peers.share, host->mac)) {
        ipoib_host_remove(part->shared.hosts, host);
    }
}

static void
role_changed(struct ipoib_partition *part, enum ipoib_role old)
{
    const struct ipoib_peers *peers = &part->peers;
    bool standby = (peers->role == IPOIB_ROLE_WAITING
                    || peers->role == IPOIB_ROLE_STANDBY);
    struct ds s = DS_EMPTY_INITIALIZER;
    size_t pos = 0;
    bool was_standby;

    atomic_read_relaxed(&part->shared.standby, &was_standby);
    ipoib_partition_peers_format(part, &s);
    ipoib_event_add(&part->events, part->name, IPOIB_EVENT_PEERS, "%s",
                    ds_cstr(&s));
    ds_destroy(&s);

    if (peers->mode == IPOIB_PEERS_GUARD && standby && !was_standby
        && peers->n_loops) {
        /* What was learned in the loop is not worth anything. */
        ipoib_neigh_flush(part->shared.neighs);
        ipoib_host_flush(part->shared.hosts);
    }
    atomic_store_relaxed(&part->shared.standby, standby);
    if (peers->n_present) {
        ipoib_neigh_walk(part->shared.neighs, &pos, SIZE_MAX, forget_peer,
                         part);
        pos = 0;
        ipoib_host_walk(part->shared.hosts, &pos, SIZE_MAX, forget_standin,
                        part);
    }
    if (!standby && (was_standby || peers->role == IPOIB_ROLE_SHARING)
        && old != IPOIB_ROLE_ALONE) {
        /* Takes over: both sides are to know. */
        ipoib_partition_announce_all(part);
        part->sync.announcing = true;
        part->sync.announce_pos = 0;
        part->sync.next_announce = 0;
        part->n_queries = 1;
        part->next_query = time_msec();
    } else if (peers->role == IPOIB_ROLE_ACTIVE && peers->n_present
               && !part->n_queries) {
        /* The other one may have been active, too, with hosts that only it
         * knows: they are asked. */
        part->n_queries = 1;
        part->next_query = time_msec();
    }
    part->sync.pos = 0;
    part->sync.hosts_done = false;
    part->sync.n_changed = 0;
    if (part->ops) {
        part->ops->changed(part->aux);
    }
}

static void
announce_neigh(struct ipoib_neigh *neigh, void *part_)
{
    struct ipoib_partition *part = part_;

    if (ipoib_partition_neigh_is_ours(part, &neigh->addr.gid)) {
        ipoib_control_announce_neigh(part, neigh);
    }
}

static void
run_announcements(struct ipoib_partition *part, long long int now)
{
    struct ipoib_partition_sync *state = &part->sync;

    if (state->announcing && now >= state->next_announce) {
        state->announcing = ipoib_neigh_walk(
            part->shared.neighs, &state->announce_pos, ANNOUNCE_BURST,
            announce_neigh, part);
        state->next_announce = now + ANNOUNCE_INTERVAL;
    }
}

void
ipoib_partition_set_peers(struct ipoib_partition *part,
                          enum ipoib_peer_mode mode)
{
    enum ipoib_role old = part->peers.role;
    bool was_share = part->peers.mode == IPOIB_PEERS_SHARE;
    bool share = mode == IPOIB_PEERS_SHARE;

    if (mode == part->peers.mode) {
        return;
    }
    part->peers.gid = part->port->gid;
    ipoib_peers_set_mode(&part->peers, mode, time_msec());
    if (share != was_share) {
        /* They get other stand-in MACs. */
        ipoib_neigh_flush(part->shared.neighs);
        ipoib_neigh_table_set_share(part->shared.neighs,
                                    share ? part->port->guid : 0);
    }
    if (old != part->peers.role) {
        role_changed(part, old);
    }
}

void
ipoib_partition_run_peers(struct ipoib_partition *part, long long int now)
{
    struct ipoib_peers *peers = &part->peers;
    enum ipoib_role old = peers->role;
    bool up;

    run_announcements(part, now);
    if (!ipoib_peers_talk(peers)) {
        return;
    }
    peers->gid = part->port->gid;
    atomic_read_relaxed(&part->shared.up, &up);
    if (!up) {
        if (old != IPOIB_ROLE_WAITING) {
            send_on_ethernet(part, true, false);
            ipoib_peers_restart(peers, now);
            role_changed(part, old);
        }
        peers->since = peers->last_run = now;
        return;
    }
    if (ipoib_peers_run(peers, now)) {
        role_changed(part, old);
    }
    if (now >= peers->next) {
        peers_talk(part);
        peers->next = now + IPOIB_PEER_INTERVAL;
    }
}

void
ipoib_partition_wait_peers(const struct ipoib_partition *part)
{
    if (part->sync.announcing) {
        poll_timer_wait_until(part->sync.next_announce);
    }
    if (ipoib_peers_talk(&part->peers)) {
        bool up;

        atomic_read_relaxed(&CONST_CAST(struct ipoib_partition *, part)
                            ->shared.up, &up);
        if (up) {
            poll_timer_wait_until(part->peers.next);
        }
    }
}

/* The port ends: others take over at once. */
void
ipoib_partition_leave_peers(struct ipoib_partition *part)
{
    if (ipoib_peers_talk(&part->peers)) {
        bool up;

        atomic_read_relaxed(&part->shared.up, &up);
        if (up) {
            send_on_fabric(part, true);
        }
        send_on_ethernet(part, true, false);
    }
}

/* Appends the role and the peers to 's'. */
void
ipoib_partition_peers_format(const struct ipoib_partition *part, struct ds *s)
{
    const struct ipoib_peers *peers = &part->peers;
    const struct ipoib_peer *peer;

    ds_put_cstr(s, ipoib_role_to_string(peers->role));
    LIST_FOR_EACH (peer, node, &peers->peers) {
        if (peer->present) {
            ds_put_format(s, ", with 0x%016"PRIx64" (%s)",
                          ib_gid_guid(&peer->gid),
                          peer->flags & IPOIB_BEACON_ACTIVE ? "active"
                          : peer->flags & IPOIB_BEACON_SHARE ? "sharing"
                          : "standby");
        }
    }
}
