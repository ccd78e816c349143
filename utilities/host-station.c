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
#include "host-station.h"

#include <errno.h>
#include <limits.h>
#include <netinet/icmp6.h>
#include <netinet/ip6.h>
#include <stdlib.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(host_station);

COVERAGE_DEFINE(host_route_flush);

#define DEST_QUEUE 16           /* Packets that wait for a path. */
#define GROUP_QUEUE 64          /* Packets that wait for a group. */
#define DEST_IDLE 120000        /* ms after which a path is let go. */
#define GC_INTERVAL 10000       /* ms. */
#define GROUPS_INTERVAL 1000    /* ms between looks at the kernel's groups. */
#define ROUTES_MAX 4096
#define ROUTES_INTERVAL 5000    /* ms after which routes are asked again. */
#define N_ANNOUNCE 3            /* How often an address is announced. */
#define ANNOUNCE_INTERVAL 700   /* ms between them. */
#define ANNOUNCE_BURST 32       /* Announcements at a time, ... */
#define ANNOUNCE_PAUSE 10       /* ... and ms until the next. */

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* A group that we receive. */
struct station_group {
    struct hmap_node node;      /* In 'groups', by MGID. */
    struct ib_gid mgid;
    bool wanted;                /* While the list is read anew. */
};

/* Where packets to 'dst' go. */
struct station_route {
    struct hmap_node node;      /* In 'routes', by destination. */
    struct in6_addr dst;
    struct in6_addr next_hop;
    enum host_route_type type;
};

static uint32_t
hash_ip(const struct in6_addr *ip)
{
    return hash_bytes(ip, sizeof *ip, 0);
}

static uint32_t
hash_gid(const struct ib_gid *gid)
{
    return hash_bytes(gid, sizeof *gid, 0);
}

/* Own addresses. */

struct host_own *
host_station_own(const struct host_station *s, const struct in6_addr *ip)
{
    struct host_own *own;

    HMAP_FOR_EACH_WITH_HASH (own, node, hash_ip(ip), &s->own) {
        if (ipv6_addr_equals(&own->ip.addr, ip)) {
            return own;
        }
    }
    return NULL;
}

static bool
ip_in_prefix(const struct in6_addr *ip, const struct host_ip *prefix)
{
    bool v4 = IN6_IS_ADDR_V4MAPPED(&prefix->addr);
    struct in6_addr mask = ipv6_create_mask(prefix->plen + (v4 ? 96 : 0));
    struct in6_addr a = ipv6_addr_bitand(ip, &mask);
    struct in6_addr b = ipv6_addr_bitand(&prefix->addr, &mask);

    return ipv6_addr_equals(&a, &b);
}

struct host_own *
host_station_source_for(const struct host_station *s,
                        const struct in6_addr *ip)
{
    bool v4 = IN6_IS_ADDR_V4MAPPED(ip);
    struct host_own *best = NULL;
    struct host_own *own;

    HMAP_FOR_EACH (own, node, &s->own) {
        if (v4 != IN6_IS_ADDR_V4MAPPED(&own->ip.addr)) {
            continue;
        }
        if (ip_in_prefix(ip, &own->ip)) {
            return own;
        }
        best = own;
    }
    return best;
}

static void
own_schedule(struct host_station *s, struct host_own *own, long long int now)
{
    own->n_announce = N_ANNOUNCE;
    own->next_announce = now;
    s->next_announce = MIN(s->next_announce, now);
}

void
host_station_announce(struct host_station *s)
{
    long long int now = time_msec();
    struct host_own *own;

    HMAP_FOR_EACH (own, node, &s->own) {
        own_schedule(s, own, now);
    }
}

static void
own_add(struct host_station *s, const struct host_ip *ip)
{
    struct host_own *own = xzalloc(sizeof *own);
    unsigned int n_ids = host_hca_n_ids(s->hca);

    own->ip = *ip;
    own->seen = true;
    if (IN6_IS_ADDR_V4MAPPED(&ip->addr)) {
        own->id = s->n_v4++ % n_ids;
    } else if (!IN6_IS_ADDR_LINKLOCAL(&ip->addr)) {
        own->id = s->n_v6++ % n_ids;
    }
    hmap_insert(&s->own, &own->node, hash_ip(&ip->addr));
    own_schedule(s, own, time_msec());
}

/* Reads the addresses that the TUN has. */
static void
own_refresh(struct host_station *s)
{
    struct host_ip *ips;
    struct host_own *own;
    size_t n;
    int error = host_tun_get_ips(s->tun, &ips, &n);

    s->refresh_own = false;
    if (error) {
        VLOG_WARN_RL(&rl, "%s: cannot read the addresses: %s",
                     host_tun_name(s->tun), ovs_strerror(error));
        free(ips);
        return;
    }
    HMAP_FOR_EACH (own, node, &s->own) {
        own->seen = false;
    }
    for (size_t i = 0; i < n; i++) {
        own = host_station_own(s, &ips[i].addr);
        if (own) {
            own->ip.plen = ips[i].plen;
            own->seen = true;
        } else {
            own_add(s, &ips[i]);
        }
    }
    free(ips);
    HMAP_FOR_EACH_SAFE (own, node, &s->own) {
        if (!own->seen) {
            hmap_remove(&s->own, &own->node);
            free(own);
        }
    }
    s->refresh_groups = true;
}

/* The link-local address is that of the port's GUID (RFC 4391, 8), as Linux
 * makes it. */
static void
own_set_link_local(struct host_station *s)
{
    uint64_t guid = host_hca_guid(s->hca) | UINT64_C(0x0200000000000000);
    struct ib_gid gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, guid);
    struct host_ip ip = { .plen = 64 };

    if (!host_hca_guid(s->hca)) {
        return;
    }
    memcpy(&ip.addr, gid.raw, sizeof ip.addr);
    if (s->has_link_local) {
        if (ipv6_addr_equals(&ip.addr, &s->link_local.addr)) {
            return;
        }
        host_tun_del_ip(s->tun, &s->link_local);
    }
    s->has_link_local = !host_tun_add_ip(s->tun, &ip);
    s->link_local = ip;
    s->refresh_own = true;
}

/* Sends the announcements that are due. */
static void
own_announce(struct host_station *s, long long int now)
{
    struct host_own *own;
    int n = 0;

    if (now < s->next_announce || !host_hca_is_up(s->hca, NULL)) {
        return;
    }
    s->next_announce = LLONG_MAX;
    HMAP_FOR_EACH (own, node, &s->own) {
        if (!own->n_announce) {
            continue;
        }
        if (now >= own->next_announce) {
            if (n >= ANNOUNCE_BURST) {
                s->next_announce = now + ANNOUNCE_PAUSE;
                break;
            }
            n++;
            host_arp_announce(s, own);
            own->n_announce--;
            own->next_announce = now + ANNOUNCE_INTERVAL;
        }
        if (own->n_announce) {
            s->next_announce = MIN(s->next_announce, own->next_announce);
        }
    }
}

/* Paths. */

static struct host_dest *
dest_find(const struct host_station *s, const struct ib_gid *gid)
{
    struct host_dest *dest;

    HMAP_FOR_EACH_WITH_HASH (dest, node, hash_gid(gid), &s->dests) {
        if (ib_gid_equals(&dest->gid, gid)) {
            return dest;
        }
    }
    return NULL;
}

static struct host_dest *
dest_get(struct host_station *s, const struct ib_gid *gid)
{
    struct host_dest *dest = dest_find(s, gid);

    if (!dest) {
        dest = xzalloc(sizeof *dest);
        dest->gid = *gid;
        ovs_list_init(&dest->wait);
        hmap_insert(&s->dests, &dest->node, hash_gid(gid));
        dest->path = ipoib_path_ref(host_hca_paths(s->hca), gid);
    }
    dest->used = time_msec();
    return dest;
}

static void
dest_destroy(struct host_station *s, struct host_dest *dest)
{
    s->stats.drop_no_path += host_wait_destroy_all(&dest->wait);
    ipoib_path_unref(dest->path);
    hmap_remove(&s->dests, &dest->node);
    free(dest);
}

static void
dest_queue(struct host_station *s, struct host_dest *dest,
           struct host_wait *wait)
{
    if (dest->n_wait >= DEST_QUEUE) {
        free(CONTAINER_OF(ovs_list_pop_front(&dest->wait), struct host_wait,
                          node));
        dest->n_wait--;
        s->stats.drop_queue++;
    }
    ovs_list_push_back(&dest->wait, &wait->node);
    dest->n_wait++;
}

static bool
dest_is_ready(struct host_station *s, struct host_dest *dest)
{
    if (dest->path->state == IPOIB_PATH_FAILED) {
        ipoib_path_poke(dest->path);
    }
    if (dest->path->state == IPOIB_PATH_FAILED) {
        s->stats.drop_no_path++;
    }
    return dest->path->state == IPOIB_PATH_READY && dest->path->ah;
}

/* Where to send what goes to a neighbour whose address is known as 'addr'.
 * NULL if that stands for nobody; then the packet is counted as dropped. */
static const struct ipoib_addr *
station_resolve(struct host_station *s, const struct ipoib_addr *addr)
{
    if (s->learn_completion && !ib_gid_prefix(&addr->gid)) {
        addr = host_remacs_find(&s->remacs, addr);
        s->stats.drop_no_neigh += !addr;
    }
    return addr;
}

void
host_station_send_to(struct host_station *s, const void *data, size_t len,
                     unsigned int id, const struct ipoib_addr *addr)
{
    struct host_dest *dest;
    struct host_tx *tx;

    addr = station_resolve(s, addr);
    if (!addr) {
        return;
    }
    dest = dest_get(s, &addr->gid);
    if (!dest_is_ready(s, dest)) {
        if (dest->path->state == IPOIB_PATH_RESOLVING) {
            struct host_wait *wait;

            wait = host_wait_create(data, len, &in6addr_any);
            wait->id = id;
            wait->qpn = ipoib_addr_qpn(addr);
            dest_queue(s, dest, wait);
        }
        return;
    }
    tx = len <= host_hca_tx_size(s->hca) ? host_hca_tx_get(s->hca) : NULL;
    if (!tx) {
        s->stats.drop_queue++;
        return;
    }
    memcpy(tx->data, data, len);
    host_hca_tx_unicast(s->hca, tx, len, id, dest->path->ah,
                        ipoib_addr_qpn(addr));
}

static void
station_path_changed(void *s_, struct ipoib_path *path)
{
    struct host_station *s = s_;
    struct host_dest *dest = dest_find(s, &path->dgid);
    struct ovs_list list;
    struct host_wait *wait;

    if (!dest || dest->path != path || !dest->n_wait) {
        return;
    }
    if (path->state == IPOIB_PATH_RESOLVING) {
        return;
    }
    ovs_list_init(&list);
    ovs_list_push_back_all(&list, &dest->wait);
    dest->n_wait = 0;
    LIST_FOR_EACH_POP (wait, node, &list) {
        struct ipoib_addr addr = ipoib_addr_make(wait->qpn, &dest->gid);

        host_station_send_to(s, wait->data, wait->len, wait->id, &addr);
        free(wait);
    }
}

void
host_station_check_path(struct host_station *s, const struct ib_gid *gid,
                        uint16_t slid, bool has_grh)
{
    uint16_t mask = ~((1 << host_hca_port(s->hca)->lmc) - 1);
    struct host_dest *dest = dest_find(s, gid);

    if (dest && dest->path->state == IPOIB_PATH_READY && slid
        && ((dest->path->dlid ^ slid) & mask)
        && !(has_grh && ib_gid_prefix(gid)
                        != ib_gid_prefix(host_hca_gid(s->hca)))) {
        ipoib_path_suspect(dest->path);
    }
}

/* Groups. */

void
host_station_send_group(struct host_station *s, const void *data, size_t len,
                        unsigned int id, const struct ib_gid *mgid)
{
    struct ipoib_mcast *mcast = host_hca_mcast(s->hca);
    struct ipoib_mcast_group *group = ipoib_mcast_find(mcast, mgid);
    struct host_wait *wait;
    struct host_tx *tx;

    if (!host_hca_is_up(s->hca, NULL)) {
        s->stats.drop_down++;
        return;
    }
    if (!group) {
        group = ipoib_mcast_want(mcast, mgid, IPOIB_MCAST_SEND);
    }
    if (!group) {
        s->stats.drop_no_group++;
        return;
    }
    if (group->state == IPOIB_MCAST_JOINED && group->ah) {
        tx = len <= host_hca_tx_size(s->hca) ? host_hca_tx_get(s->hca) : NULL;
        if (!tx) {
            s->stats.drop_queue++;
            return;
        }
        memcpy(tx->data, data, len);
        host_hca_tx_group(s->hca, tx, len, id, group);
        return;
    }
    if (group->n_wait >= GROUP_QUEUE) {
        s->stats.drop_queue++;
        return;
    }
    wait = host_wait_create(data, len, &in6addr_any);
    wait->id = id;
    ovs_list_push_back(&group->wait, &wait->node);
    group->n_wait++;
}

static void
station_group_changed(void *s_, struct ipoib_mcast_group *group)
{
    struct host_station *s = s_;
    struct ovs_list list;
    struct host_wait *wait;

    if (!group->n_wait) {
        return;
    }
    if (group->last_status || group->last_error) {
        s->stats.drop_no_group += host_wait_destroy_all(&group->wait);
        group->n_wait = 0;
    } else if (group->state == IPOIB_MCAST_JOINED && group->ah) {
        ovs_list_init(&list);
        ovs_list_push_back_all(&list, &group->wait);
        group->n_wait = 0;
        LIST_FOR_EACH_POP (wait, node, &list) {
            host_station_send_group(s, wait->data, wait->len, wait->id,
                                    &group->mgid);
            free(wait);
        }
    }
}

static void
station_group_removed(void *s_, struct ipoib_mcast_group *group)
{
    struct host_station *s = s_;

    s->stats.drop_no_group += host_wait_destroy_all(&group->wait);
    group->n_wait = 0;
}

static struct ib_gid
station_mgid(const struct host_station *s, const struct in6_addr *group)
{
    uint16_t pkey = host_hca_pkey(s->hca);
    uint8_t scope = host_hca_scope(s->hca);

    return (IN6_IS_ADDR_V4MAPPED(group)
            ? ipoib_mgid_ipv4(in6_addr_get_mapped_ipv4(group), pkey, scope)
            : ipoib_mgid_ipv6(group, pkey, scope));
}

static void
group_want(struct host_station *s, const struct in6_addr *ip)
{
    struct ib_gid mgid = station_mgid(s, ip);
    uint32_t hash = hash_gid(&mgid);
    struct station_group *group;

    HMAP_FOR_EACH_WITH_HASH (group, node, hash, &s->groups) {
        if (ib_gid_equals(&group->mgid, &mgid)) {
            group->wanted = true;
            return;
        }
    }
    if (!ipoib_mcast_want(host_hca_mcast(s->hca), &mgid, IPOIB_MCAST_RECV)) {
        return;
    }
    group = xzalloc(sizeof *group);
    group->mgid = mgid;
    group->wanted = true;
    hmap_insert(&s->groups, &group->node, hash);
}

/* Joins the groups that we have to be in, those of our addresses and those
 * that the kernel asks for, and leaves the others. */
static void
groups_refresh(struct host_station *s, long long int now)
{
    struct station_group *group;
    struct in6_addr all_v4;
    struct in6_addr *ips;
    struct host_own *own;
    size_t n;

    s->refresh_groups = false;
    s->next_groups = now + GROUPS_INTERVAL;
    if (!host_hca_is_up(s->hca, NULL)) {
        return;                 /* The scope is not known yet. */
    }
    HMAP_FOR_EACH (group, node, &s->groups) {
        group->wanted = false;
    }

    in6_addr_set_mapped_ipv4(&all_v4, htonl(0xe0000001));
    group_want(s, &all_v4);
    group_want(s, &in6addr_all_hosts);
    HMAP_FOR_EACH (own, node, &s->own) {
        if (!IN6_IS_ADDR_V4MAPPED(&own->ip.addr)) {
            struct in6_addr solicited = ipoib_solicited_node(&own->ip.addr);

            group_want(s, &solicited);
        }
    }
    host_tun_get_groups(s->tun, &ips, &n);
    for (size_t i = 0; i < n; i++) {
        group_want(s, &ips[i]);
    }
    free(ips);

    HMAP_FOR_EACH_SAFE (group, node, &s->groups) {
        if (!group->wanted) {
            ipoib_mcast_unwant(host_hca_mcast(s->hca), &group->mgid);
            hmap_remove(&s->groups, &group->node);
            free(group);
        }
    }
}

/* Routes. */

static void
routes_flush(struct host_station *s)
{
    struct station_route *route;

    COVERAGE_INC(host_route_flush);
    HMAP_FOR_EACH_SAFE (route, node, &s->routes) {
        hmap_remove(&s->routes, &route->node);
        free(route);
    }
}

/* Where packets to 'dst' go: asks the kernel, unless it was asked lately. */
static const struct station_route *
route_lookup(struct host_station *s, const struct in6_addr *dst)
{
    const struct in6_addr *gateway;
    struct station_route *route;
    uint32_t hash = hash_ip(dst);

    HMAP_FOR_EACH_WITH_HASH (route, node, hash, &s->routes) {
        if (ipv6_addr_equals(&route->dst, dst)) {
            return route;
        }
    }
    if (hmap_count(&s->routes) >= ROUTES_MAX) {
        routes_flush(s);
    }
    route = xzalloc(sizeof *route);
    route->dst = *dst;
    route->type = host_tun_get_route(s->tun, dst, &route->next_hop);

    /* On link as the kernel sees it, but on none of our subnets: this is what
     * --gateway is for. */
    gateway = IN6_IS_ADDR_V4MAPPED(dst) ? &s->gateway4 : &s->gateway6;
    if (route->type == HOST_ROUTE_UNICAST && ipv6_addr_is_set(gateway)
        && ipv6_addr_equals(&route->next_hop, dst)
        && !IN6_IS_ADDR_LINKLOCAL(dst)) {
        struct host_own *own = host_station_source_for(s, dst);

        if (!own || !ip_in_prefix(dst, &own->ip)) {
            route->next_hop = *gateway;
        }
    }
    hmap_insert(&s->routes, &route->node, hash);
    return route;
}

/* Packets of the TUN. */

void
host_station_flush_neigh(struct host_station *s, struct host_neigh *neigh)
{
    struct host_wait *wait;

    LIST_FOR_EACH_POP (wait, node, &neigh->wait) {
        host_station_send_to(s, wait->data, wait->len, wait->id,
                             &neigh->addr);
        free(wait);
    }
}

/* Sends 'tx', a packet of 'len' bytes from 'src', to the next hop. */
static void
station_send_unicast(struct host_station *s, struct host_tx *tx, size_t len,
                     const struct in6_addr *src,
                     const struct in6_addr *next_hop)
{
    const struct host_own *own = host_station_own(s, src);
    unsigned int id = own ? own->id : 0;
    const struct ipoib_addr *addr;
    struct host_neigh *neigh;
    struct host_dest *dest;
    struct host_wait *wait;

    neigh = host_neigh_use(s->neighs, next_hop, src, time_msec());
    if (!host_neigh_is_usable(neigh)) {
        wait = host_wait_create(tx->data, len, src);
        wait->id = id;
        s->stats.drop_queue += host_neigh_queue(neigh, wait);
        host_hca_tx_put(s->hca, tx);
        return;
    }

    addr = station_resolve(s, &neigh->addr);
    if (!addr) {
        host_hca_tx_put(s->hca, tx);
        return;
    }
    dest = dest_get(s, &addr->gid);
    if (dest_is_ready(s, dest)) {
        host_hca_tx_unicast(s->hca, tx, len, id, dest->path->ah,
                            ipoib_addr_qpn(addr));
        return;
    }
    if (dest->path->state == IPOIB_PATH_RESOLVING) {
        wait = host_wait_create(tx->data, len, src);
        wait->id = id;
        wait->qpn = ipoib_addr_qpn(addr);
        dest_queue(s, dest, wait);
    }
    host_hca_tx_put(s->hca, tx);
}

/* Sends 'tx' to the group 'dst', or to all if 'dst' is NULL. */
static void
station_send_multicast(struct host_station *s, struct host_tx *tx, size_t len,
                       const struct in6_addr *src, const struct in6_addr *dst)
{
    const struct host_own *own = host_station_own(s, src);
    struct ib_gid mgid;

    mgid = (dst ? station_mgid(s, dst)
            : ipoib_mgid_broadcast(host_hca_pkey(s->hca),
                                   host_hca_scope(s->hca)));
    host_station_send_group(s, tx->data, len, own ? own->id : 0, &mgid);
    host_hca_tx_put(s->hca, tx);
}

/* Looks for what the kernel reports of its groups. */
static void
station_snoop(struct host_station *s, uint16_t type, const void *ip,
              size_t len)
{
    size_t ip_len, l4_ofs;

    switch (ipoib_packet_check_ip(type, ip, len, &ip_len, &l4_ofs)) {
    case IPOIB_IP_IGMP:
    case IPOIB_IP_MLD:
        s->refresh_groups = true;
        break;
    case IPOIB_IP_BAD:
    case IPOIB_IP_DATA:
    case IPOIB_IP_PIM:
    case IPOIB_IP_ND:
    case IPOIB_IP_DHCP:
        break;
    }
}

/* Stores the addresses of the IP packet of 'len' bytes at 'data' and its
 * Ethernet type.  Returns false if it is none. */
static bool
parse_ip(const uint8_t *data, size_t len, uint16_t *type,
         struct in6_addr *src, struct in6_addr *dst)
{
    if (len >= IP_HEADER_LEN && data[0] >> 4 == 4) {
        ovs_be32 addrs[2];

        memcpy(addrs, data + offsetof(struct ip_header, ip_src),
               sizeof addrs);
        in6_addr_set_mapped_ipv4(src, addrs[0]);
        in6_addr_set_mapped_ipv4(dst, addrs[1]);
        *type = ETH_TYPE_IP;
        return true;
    } else if (len >= IPV6_HEADER_LEN && data[0] >> 4 == 6) {
        memcpy(src, data + offsetof(struct ovs_16aligned_ip6_hdr, ip6_src),
               sizeof *src);
        memcpy(dst, data + offsetof(struct ovs_16aligned_ip6_hdr, ip6_dst),
               sizeof *dst);
        *type = ETH_TYPE_IPV6;
        return true;
    }
    return false;
}

/* Sends 'tx', which holds an IP packet of 'len' bytes behind the room for the
 * IPoIB header. */
static void
station_transmit(struct host_station *s, struct host_tx *tx, size_t len)
{
    uint8_t *ip = tx->data + IPOIB_HEADER_LEN;
    struct ipoib_header header = { .reserved = 0 };
    const struct station_route *route;
    struct in6_addr src, dst;
    uint64_t *drop = NULL;
    uint16_t type;
    bool v4;

    s->stats.tun_rx_packets++;
    if (!parse_ip(ip, len, &type, &src, &dst)) {
        drop = &s->stats.drop_bad;
    } else if (!host_hca_is_up(s->hca, NULL)) {
        drop = &s->stats.drop_down;
    } else if (len > host_hca_mtu(s->hca)) {
        drop = &s->stats.drop_too_long;
    }
    if (drop) {
        ++*drop;
        host_hca_tx_put(s->hca, tx);
        return;
    }
    header.type = htons(type);
    memcpy(tx->data, &header, sizeof header);
    v4 = type == ETH_TYPE_IP;
    len += IPOIB_HEADER_LEN;

    if (v4 ? ip_is_multicast(in6_addr_get_mapped_ipv4(&dst))
           : ipv6_addr_is_multicast(&dst)) {
        station_snoop(s, type, ip, len - IPOIB_HEADER_LEN);
        station_send_multicast(s, tx, len, &src, &dst);
        return;
    }
    if (v4 && in6_addr_get_mapped_ipv4(&dst) == OVS_BE32_MAX) {
        station_send_multicast(s, tx, len, &src, NULL);
        return;
    }

    route = route_lookup(s, &dst);
    switch (route->type) {
    case HOST_ROUTE_UNICAST:
        station_send_unicast(s, tx, len, &src, &route->next_hop);
        break;
    case HOST_ROUTE_BROADCAST:
        station_send_multicast(s, tx, len, &src, NULL);
        break;
    case HOST_ROUTE_NONE:
        s->stats.drop_no_route++;
        host_hca_tx_put(s->hca, tx);
        break;
    }
}

/* Takes a batch of packets from the TUN.  Returns true if there may be
 * more. */
static bool
station_run_tun(struct host_station *s)
{
    for (int i = 0; i < HOST_HCA_BATCH; i++) {
        struct host_tx *tx = host_hca_tx_get(s->hca);
        size_t len;

        if (!tx) {
            return false;       /* host_hca_wait() wakes us. */
        }
        len = host_tun_read(s->tun, tx->data + IPOIB_HEADER_LEN,
                            host_hca_tx_size(s->hca) - IPOIB_HEADER_LEN);
        if (!len) {
            host_hca_tx_put(s->hca, tx);
            return false;
        }
        station_transmit(s, tx, len);
    }
    return true;
}

/* Packets of the fabric. */

static void
station_receive(void *s_, const struct host_rx *rx)
{
    struct host_station *s = s_;
    enum ipoib_ip_class class;
    size_t ip_len, l4_ofs;

    if (rx->type == ETH_TYPE_ARP) {
        host_arp_receive(s, rx);
        return;
    }
    class = ipoib_packet_check_ip(rx->type, rx->data, rx->len, &ip_len,
                                  &l4_ofs);
    if (class == IPOIB_IP_BAD) {
        s->stats.rx_bad++;
    } else if (class == IPOIB_IP_ND) {
        host_nd_receive(s, rx, ip_len, l4_ofs);
    } else if (host_tun_write(s->tun, rx->data, ip_len)) {
        s->stats.tun_tx_errors++;
    } else {
        s->stats.tun_tx_packets++;
    }
}

static void
station_changed(void *s_, bool readdressed)
{
    struct host_station *s = s_;

    s->hca_changed = true;
    s->readdressed |= readdressed;
}

static const struct host_hca_ops station_hca_ops = {
    .receive = station_receive,
    .changed = station_changed,
    .path_changed = station_path_changed,
    .group_changed = station_group_changed,
    .group_removed = station_group_removed,
};

/* The link, its MTU or the hardware addresses changed. */
static void
station_update_link(struct host_station *s)
{
    const char *reason;
    bool up = host_hca_is_up(s->hca, &reason);
    int mtu = host_hca_mtu(s->hca);

    s->hca_changed = false;
    own_set_link_local(s);
    if (mtu) {
        int error;

        if (s->mtu_limit) {
            mtu = MIN(mtu, s->mtu_limit);
        }
        error = host_tun_set_mtu(s->tun, mtu);
        if (error) {
            VLOG_WARN_RL(&rl, "%s: cannot set the MTU to %d: %s",
                         host_tun_name(s->tun), mtu, ovs_strerror(error));
        }
    }
    if (up) {
        VLOG_INFO("%s: up, MTU %d", host_tun_name(s->tun), mtu);
        s->refresh_groups = true;
    } else {
        VLOG_INFO("%s: down: %s", host_tun_name(s->tun), reason);
    }
    host_tun_set_carrier(s->tun, up);
    if (s->readdressed) {
        s->readdressed = false;
        host_station_announce(s);
    }
}

/* Making and ending. */

static int
station_add_ips(struct host_station *s, const struct host_ip *ips, size_t n,
                char **errp)
{
    for (size_t i = 0; i < n; i++) {
        int error = host_tun_add_ip(s->tun, &ips[i]);

        if (error) {
            struct ds ds = DS_EMPTY_INITIALIZER;

            ipv6_format_mapped(&ips[i].addr, &ds);
            *errp = xasprintf("--address=%s/%d: cannot add it to %s: %s",
                              ds_cstr(&ds), ips[i].plen,
                              host_tun_name(s->tun), ovs_strerror(error));
            ds_destroy(&ds);
            return error;
        }
    }
    return 0;
}

int
host_station_create(const struct host_station_config *config,
                    struct host_station **sp, char **errp)
{
    struct host_station *s = xzalloc(sizeof *s);
    int error;

    *sp = NULL;
    hmap_init(&s->own);
    hmap_init(&s->groups);
    hmap_init(&s->routes);
    hmap_init(&s->dests);
    s->mtu_limit = config->mtu;
    host_remacs_init(&s->remacs);
    s->learn_completion = config->learn_completion;
    s->gateway4 = config->gateway4;
    s->gateway6 = config->gateway6;
    s->next_announce = LLONG_MAX;
    s->refresh_own = s->hca_changed = true;
    s->neighs = host_neigh_cache_create(&host_arp_neigh_ops, s);

    error = host_hca_open(&config->hca, &station_hca_ops, s, &s->hca, errp);
    if (!error) {
        error = host_tun_open(config->tun, &s->tun, errp);
    }
    if (!error) {
        error = station_add_ips(s, config->ips, config->n_ips, errp);
    }
    if (error) {
        host_station_destroy(s);
        return error;
    }
    *sp = s;
    return 0;
}

void
host_station_destroy(struct host_station *s)
{
    struct station_group *group;
    struct host_dest *dest;
    struct host_own *own;

    if (!s) {
        return;
    }
    HMAP_FOR_EACH_SAFE (dest, node, &s->dests) {
        dest_destroy(s, dest);
    }
    host_neigh_cache_destroy(s->neighs);
    host_hca_close(s->hca);
    host_tun_close(s->tun);
    routes_flush(s);
    HMAP_FOR_EACH_SAFE (group, node, &s->groups) {
        hmap_remove(&s->groups, &group->node);
        free(group);
    }
    HMAP_FOR_EACH_SAFE (own, node, &s->own) {
        hmap_remove(&s->own, &own->node);
        free(own);
    }
    host_remacs_destroy(&s->remacs);
    hmap_destroy(&s->dests);
    hmap_destroy(&s->routes);
    hmap_destroy(&s->groups);
    hmap_destroy(&s->own);
    free(s);
}

/* Running. */

static void
station_gc(struct host_station *s, long long int now)
{
    struct host_dest *dest;

    if (now >= s->routes_expire) {
        s->routes_expire = now + ROUTES_INTERVAL;
        if (!hmap_is_empty(&s->routes)) {
            routes_flush(s);
        }
    }
    if (now >= s->next_gc) {
        s->next_gc = now + GC_INTERVAL;
        HMAP_FOR_EACH_SAFE (dest, node, &s->dests) {
            if (!dest->n_wait && now - dest->used >= DEST_IDLE) {
                dest_destroy(s, dest);
            }
        }
    }
}

void
host_station_run(struct host_station *s)
{
    long long int now = time_msec();

    if (host_tun_run(s->tun)) {
        s->refresh_own = true;
        routes_flush(s);
    }
    s->more = host_hca_run(s->hca, now);
    if (s->hca_changed) {
        station_update_link(s);
    }
    if (s->refresh_own) {
        own_refresh(s);
    }
    if (station_run_tun(s)) {
        s->more = true;
    }
    if (s->refresh_groups || now >= s->next_groups) {
        groups_refresh(s, now);
    }
    own_announce(s, now);
    host_neigh_run(s->neighs, now);
    station_gc(s, now);
    host_hca_flush(s->hca);
}

void
host_station_wait(struct host_station *s)
{
    struct host_tx *tx;

    host_hca_wait(s->hca);
    if (s->more || s->hca_changed || s->refresh_own || s->refresh_groups) {
        poll_immediate_wake();
    }

    /* Without a free buffer, packets stay where they are. */
    tx = host_hca_tx_get(s->hca);
    host_tun_wait(s->tun, tx != NULL);
    if (tx) {
        host_hca_tx_put(s->hca, tx);
    }

    host_neigh_wait(s->neighs);
    poll_timer_wait_until(s->next_groups);
    poll_timer_wait_until(s->next_gc);
    if (host_hca_is_up(s->hca, NULL)) {
        poll_timer_wait_until(s->next_announce);
    }
}
