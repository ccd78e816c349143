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

#ifndef HOST_STATION_H
#define HOST_STATION_H 1

/* An IPoIB station: a TUN device on one side, the fabric on the other, and in
 * between what an operating system's IPoIB driver does: address resolution,
 * groups, announcements. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "host-hca.h"
#include "host-neigh.h"
#include "host-remac.h"
#include "host-tun.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"

struct host_station_config {
    struct host_hca_config hca;
    const char *tun;
    int mtu;                    /* 0: as large as the fabric allows. */
    struct host_ip *ips;        /* To be configured on the TUN. */
    size_t n_ips;
    struct in6_addr gateway4;   /* Default next hops; all zeros: none. */
    struct in6_addr gateway6;
    bool learn_completion;      /* Know stations by where ARP comes from. */
};

/* One of our own addresses: one that the TUN has. */
struct host_own {
    struct hmap_node node;      /* In 'own', by address. */
    struct host_ip ip;
    unsigned int id;            /* Identity whose address we announce. */
    unsigned int n_announce;    /* Announcements still to be sent. */
    long long int next_announce;
    bool seen;                  /* While the list is read anew. */
};

/* A GID that we send to: its path, and the packets that wait for it. */
struct host_dest {
    struct hmap_node node;      /* In 'dests', by GID. */
    struct ib_gid gid;
    struct ipoib_path *path;
    struct ovs_list wait;       /* struct host_wait. */
    size_t n_wait;
    long long int used;
};

struct host_station_stats {
    uint64_t tun_rx_packets, tun_tx_packets, tun_tx_errors;
    uint64_t rx_arp, rx_nd, rx_bad, rx_conflict;
    uint64_t tx_solicit, tx_reply, tx_announce;
    uint64_t drop_no_route, drop_no_neigh, drop_queue, drop_no_path,
             drop_no_group, drop_down, drop_too_long, drop_bad;
};

struct host_station {
    struct host_hca *hca;
    struct host_tun *tun;
    struct host_neigh_cache *neighs;

    int mtu_limit;
    struct in6_addr gateway4, gateway6;

    bool learn_completion;
    struct host_remacs remacs;  /* If 'learn_completion'. */

    struct hmap own;            /* struct host_own. */
    unsigned int n_v4, n_v6;    /* Addresses ever seen, to spread them. */
    struct host_ip link_local;  /* As we configured it, from the GUID. */
    bool has_link_local;
    bool refresh_own;
    long long int next_announce;

    struct hmap groups;         /* struct station_group: what we receive. */
    bool refresh_groups;
    long long int next_groups;

    struct hmap routes;         /* struct station_route: a cache. */
    long long int routes_expire;

    struct hmap dests;          /* struct host_dest. */
    long long int next_gc;

    bool hca_changed;           /* To be looked at in run(). */
    bool readdressed;
    bool more;                  /* run() has more to do. */
    struct host_station_stats stats;
};

int host_station_create(const struct host_station_config *,
                        struct host_station **, char **errp);
void host_station_destroy(struct host_station *);
void host_station_run(struct host_station *);
void host_station_wait(struct host_station *);

/* Announces all addresses (again). */
void host_station_announce(struct host_station *);

/* Our own address 'ip', or NULL. */
struct host_own *host_station_own(const struct host_station *,
                                  const struct in6_addr *ip);

/* Registers the unixctl commands (host-show.c). */
void host_show_init(struct host_station *);

/* For host-arp.c, which does ARP and neighbour discovery. */
extern const struct host_neigh_ops host_arp_neigh_ops;
void host_arp_receive(struct host_station *, const struct host_rx *);
/* 'ip_len' and 'l4_ofs' from ipoib_packet_check_ip(). */
void host_nd_receive(struct host_station *, const struct host_rx *,
                     size_t ip_len, size_t l4_ofs);
void host_arp_announce(struct host_station *, const struct host_own *);

/* For host-arp.c: sends 'len' bytes at 'data' (from the IPoIB header on) from
 * identity 'id'. */
void host_station_send_to(struct host_station *, const void *data, size_t len,
                          unsigned int id, const struct ipoib_addr *);
void host_station_send_group(struct host_station *, const void *data,
                             size_t len, unsigned int id,
                             const struct ib_gid *mgid);
/* Sends what waits on 'neigh'. */
void host_station_flush_neigh(struct host_station *, struct host_neigh *);
/* An address for solicitations of 'ip', on the same subnet if there is one;
 * NULL if we have none of its family. */
struct host_own *host_station_source_for(const struct host_station *,
                                         const struct in6_addr *ip);
/* 'slid' was seen as the sender's LID of 'gid'. */
void host_station_check_path(struct host_station *, const struct ib_gid *gid,
                             uint16_t slid, bool has_grh);

#endif /* host-station.h */
