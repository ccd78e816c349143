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

#ifndef IPOIB_PEER_H
#define IPOIB_PEER_H 1

/* Other gateways between the same partition and the same Ethernet.
 *
 * Such gateways tell of themselves on both sides, ten times a second.  Who is
 * heard on both sides is a peer: if both forwarded, there would be a loop.
 * One of them is active, or, if all want that, they share the hosts.
 *
 * This part has neither I/O nor time of its own.  Thread-safety: one thread at
 * a time, but for struct ipoib_share, which is read by any. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-wire.h"
#include "openvswitch/list.h"
#include "openvswitch/types.h"
#include "ovs-atomic.h"
#include "packets.h"
#include "util.h"

/* Local experimental EtherType 1, also of the watchdog's packets. */
#define IPOIB_PEER_TYPE 0x88b5

/* Ethernet destination of beacons. */
#define IPOIB_PEER_MAC { { { 0x03, 0x00, 0x00, 0x49, 0x42, 0x01 } } }

#define IPOIB_PEER_INTERVAL 100 /* Between beacons, in ms. */
#define IPOIB_PEER_TIMEOUT  350 /* Silence after which a peer is gone. */
#define IPOIB_PEER_WAIT     450 /* Listening before taking part. */
#define IPOIB_PEER_LEAVE_TIME 150 /* In which a peer that has said on Ethernet
                                   * that it leaves is gone, unless it is heard
                                   * on the fabric. */
#define IPOIB_PEER_STALL    200 /* This gateway itself stood still, if it did
                                 * not run for so long. */
#define IPOIB_PEER_MEMORY  2000 /* For so long what a peer that has gone named
                                 * after itself is not taken for hosts and
                                 * neighbours: beacons may be lost. */
#define IPOIB_MAX_PEERS     15

/* options:peers. */
enum ipoib_peer_mode {
    IPOIB_PEERS_GUARD,          /* Once a loop is seen, as _STANDBY. */
    IPOIB_PEERS_STANDBY,        /* One is active. */
    IPOIB_PEERS_SHARE,          /* All are, each for some of the hosts. */
    IPOIB_PEERS_OFF,
};
const char *ipoib_peer_mode_to_string(enum ipoib_peer_mode);
bool ipoib_peer_mode_from_string(const char *, enum ipoib_peer_mode *);

enum ipoib_role {
    IPOIB_ROLE_ALONE,           /* Says nothing, and forwards. */
    IPOIB_ROLE_WAITING,         /* Listens who is there. */
    IPOIB_ROLE_STANDBY,
    IPOIB_ROLE_ACTIVE,
    IPOIB_ROLE_SHARING,
};
const char *ipoib_role_to_string(enum ipoib_role);

/* What gateways tell each other: this, then records. */
#define IPOIB_BEACON_MAGIC 0x49504757 /* "IPGW". */
#define IPOIB_BEACON_VERSION 1
#define IPOIB_BEACON_ACTIVE  0x01
#define IPOIB_BEACON_LEAVING 0x02
#define IPOIB_BEACON_SHARE   0x04
struct ipoib_beacon {
    ovs_16aligned_be32 magic;
    uint8_t version;
    uint8_t flags;
    ovs_be16 pkey;              /* With the full-member bit. */
    struct ib_gid gid;          /* The sender's. */
    ovs_be16 n_records;
    ovs_be16 reserved;
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_beacon) == 28);

struct ipoib_peer {
    struct ovs_list node;       /* In ipoib_peers 'peers'. */
    struct ib_gid gid;
    uint8_t flags;              /* As it says on the fabric. */
    long long int heard[2];     /* On the fabric, on Ethernet. */
    bool present;               /* On both, not long ago. */
    bool known;                 /* The same, IPOIB_PEER_MEMORY ago at most. */
    long long int known_until;
};

/* Which hosts and neighbours are this gateway's, if several share them: by
 * the highest random weight, so that of those that remain nothing changes when
 * one goes. */
struct ipoib_share {
    atomic_uint32_t n;          /* 0: not shared, all are ours. */
    uint64_t own;
    ATOMIC(uint64_t) others[IPOIB_MAX_PEERS];

    /* Those, and up to IPOIB_MAX_PEERS that have gone just now. */
    atomic_uint32_t n_known;
    ATOMIC(uint64_t) known[2 * IPOIB_MAX_PEERS];
};
bool ipoib_share_is_ours(const struct ipoib_share *, uint64_t key);
/* True if 'guid' is a port of one that shares with this one, or did just
 * now. */
bool ipoib_share_has_guid(const struct ipoib_share *, uint64_t guid);
/* Returns 'share', or NULL if it is NULL or nothing is shared. */
static inline const struct ipoib_share *
ipoib_share_active(const struct ipoib_share *share)
{
    uint32_t n = 0;

    if (share) {
        atomic_read_relaxed(&CONST_CAST(struct ipoib_share *, share)->n, &n);
    }
    return n ? share : NULL;
}

/* With sharing, gateways give a neighbour different stand-in MACs, and know
 * each other's: 24 of their bits are those of 'mac', a stand-in MAC, and the
 * other ones follow from these and the GUID of the gateway's port. */
struct eth_addr ipoib_share_mac(uint64_t guid, struct eth_addr mac);
/* True if 'mac' is such a MAC of one that shares with this one, or did just
 * now. */
bool ipoib_share_has_mac(const struct ipoib_share *, struct eth_addr mac);

struct ipoib_peers {
    enum ipoib_peer_mode mode;
    enum ipoib_role role;
    uint16_t pkey;
    struct ib_gid gid;          /* Own. */
    struct ovs_list peers;      /* Of struct ipoib_peer. */
    size_t n_peers;
    size_t n_present;
    size_t n_known;
    long long int since;        /* When it began to listen. */
    long long int last_run;     /* Of ipoib_peers_run(). */
    long long int next;         /* Next beacon. */
    long long int alone_since;  /* No peer since; GUARD then ends. */
    uint64_t n_loops;           /* Frames that proved a loop. */
    struct ipoib_share share;
};

void ipoib_peers_init(struct ipoib_peers *, uint16_t pkey);
void ipoib_peers_destroy(struct ipoib_peers *);
/* Begins anew with 'mode'. */
void ipoib_peers_set_mode(struct ipoib_peers *, enum ipoib_peer_mode mode,
                          long long int now);
/* A loop was seen: begins to talk. */
void ipoib_peers_loop(struct ipoib_peers *, long long int now);
/* The port was down, and is up: listens again. */
void ipoib_peers_restart(struct ipoib_peers *, long long int now);

/* Takes the beacon of 'len' bytes at 'data', heard on Ethernet or on the
 * fabric, where its GID must have been found to be that of the port that sent
 * it.  On Ethernet anybody can send what he likes: it counts for no more than
 * that there is a way.  Returns the peer if it is a good one of another
 * gateway of the partition, and if this one takes part, otherwise NULL. */
const struct ipoib_peer *
ipoib_peers_receive(struct ipoib_peers *, const void *data, size_t len,
                    bool ethernet, long long int now);
/* Decides again; to be called once in IPOIB_PEER_INTERVAL at least.  Returns
 * true if the role or the peers that are present have changed. */
bool ipoib_peers_run(struct ipoib_peers *, long long int now);
/* Makes a beacon; if 'leaving', the last one. */
void ipoib_peers_compose(const struct ipoib_peers *, bool leaving,
                         struct ipoib_beacon *);

/* True if 'gid' is that of a peer that is present, or was just now. */
bool ipoib_peers_has(const struct ipoib_peers *, const struct ib_gid *gid);
static inline bool
ipoib_peers_talk(const struct ipoib_peers *peers)
{
    return peers->role != IPOIB_ROLE_ALONE;
}

#endif /* ipoib-peer.h */
