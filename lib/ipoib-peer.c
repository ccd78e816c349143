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
#include "ipoib-peer.h"

#include <stdlib.h>
#include <string.h>
#include "util.h"

/* With options:peers=guard, gateways stop talking when no peer was there for
 * so long, in ms. */
#define GUARD_TIME 60000

/* When one was heard that never was. */
#define NEVER (-IPOIB_PEER_TIMEOUT)

static const char *const mode_names[] = {
    [IPOIB_PEERS_GUARD] = "guard",
    [IPOIB_PEERS_STANDBY] = "standby",
    [IPOIB_PEERS_SHARE] = "share",
    [IPOIB_PEERS_OFF] = "off",
};

const char *
ipoib_peer_mode_to_string(enum ipoib_peer_mode mode)
{
    return mode_names[mode];
}

bool
ipoib_peer_mode_from_string(const char *s, enum ipoib_peer_mode *mode)
{
    for (size_t i = 0; i < ARRAY_SIZE(mode_names); i++) {
        if (!strcmp(s, mode_names[i])) {
            *mode = i;
            return true;
        }
    }
    return false;
}

const char *
ipoib_role_to_string(enum ipoib_role role)
{
    static const char *const names[] = {
        [IPOIB_ROLE_ALONE] = "alone",
        [IPOIB_ROLE_WAITING] = "waiting",
        [IPOIB_ROLE_STANDBY] = "standby",
        [IPOIB_ROLE_ACTIVE] = "active",
        [IPOIB_ROLE_SHARING] = "sharing",
    };

    return names[role];
}


/* Sharing. */

static uint64_t
weight(uint64_t guid, uint64_t key)
{
    uint64_t x = (guid ^ key) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 32) ^ guid) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32) ^ key) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

bool
ipoib_share_is_ours(const struct ipoib_share *share_, uint64_t key)
{
    struct ipoib_share *share = CONST_CAST(struct ipoib_share *, share_);
    uint64_t own;
    uint32_t n;

    atomic_read_relaxed(&share->n, &n);
    if (!n) {
        return true;
    }
    own = weight(share->own, key);
    for (uint32_t i = 0; i < MIN(n, IPOIB_MAX_PEERS); i++) {
        uint64_t guid, w;

        atomic_read_relaxed(&share->others[i], &guid);
        w = guid ? weight(guid, key) : 0;
        if (guid && (w > own || (w == own && guid < share->own))) {
            return false;
        }
    }
    return true;
}

bool
ipoib_share_has_guid(const struct ipoib_share *share_, uint64_t guid)
{
    struct ipoib_share *share = CONST_CAST(struct ipoib_share *, share_);
    uint32_t n;

    atomic_read_relaxed(&share->n_known, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t other;

        atomic_read_relaxed(&share->known[i], &other);
        if (other == guid) {
            return true;
        }
    }
    return false;
}

struct eth_addr
ipoib_share_mac(uint64_t guid, struct eth_addr mac)
{
    uint64_t low = eth_addr_to_uint64(mac) & 0xffffff;
    uint64_t high = weight(guid, low) >> (64 - 22);
    uint64_t bits = high << 24 | low;
    struct eth_addr result;

    eth_addr_from_uint64((bits >> 40 & 0x3f) << 42 | UINT64_C(2) << 40
                         | (bits & UINT64_C(0xffffffffff)), &result);
    return result;
}

bool
ipoib_share_has_mac(const struct ipoib_share *share_, struct eth_addr mac)
{
    struct ipoib_share *share = CONST_CAST(struct ipoib_share *, share_);
    uint32_t n;

    atomic_read_relaxed(&share->n_known, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t guid;

        atomic_read_relaxed(&share->known[i], &guid);
        if (eth_addr_equals(ipoib_share_mac(guid, mac), mac)) {
            return true;
        }
    }
    return false;
}

/* Publishes who shares. */
static void
share_update(struct ipoib_peers *peers)
{
    const struct ipoib_peer *peer;
    uint32_t n = 0, n_known = 0;

    peers->share.own = ib_gid_guid(&peers->gid);
    if (peers->role == IPOIB_ROLE_SHARING) {
        LIST_FOR_EACH (peer, node, &peers->peers) {
            uint64_t guid = ib_gid_guid(&peer->gid);

            if (peer->present) {
                atomic_store_relaxed(&peers->share.others[n++], guid);
            }
            if (peer->known) {
                atomic_store_relaxed(&peers->share.known[n_known++], guid);
            }
        }
        /* Alone, all is ours, but it is shared all the same. */
        if (!n) {
            atomic_store_relaxed(&peers->share.others[n++], 0);
        }
    }
    atomic_store_relaxed(&peers->share.n, n);
    atomic_store_relaxed(&peers->share.n_known, n_known);
}


/* Peers. */

void
ipoib_peers_init(struct ipoib_peers *peers, uint16_t pkey)
{
    memset(peers, 0, sizeof *peers);
    peers->mode = IPOIB_PEERS_GUARD;
    peers->role = IPOIB_ROLE_ALONE;
    peers->pkey = pkey;
    ovs_list_init(&peers->peers);
    atomic_init(&peers->share.n, 0);
    atomic_init(&peers->share.n_known, 0);
}

static void
peers_clear(struct ipoib_peers *peers)
{
    struct ipoib_peer *peer;

    LIST_FOR_EACH_POP (peer, node, &peers->peers) {
        free(peer);
    }
    peers->n_peers = peers->n_present = peers->n_known = 0;
}

void
ipoib_peers_destroy(struct ipoib_peers *peers)
{
    peers_clear(peers);
}

static void
peers_begin(struct ipoib_peers *peers, enum ipoib_role role,
            long long int now)
{
    peers->role = role;
    peers->since = peers->next = peers->alone_since = now;
    peers->last_run = now;
    share_update(peers);
}

void
ipoib_peers_set_mode(struct ipoib_peers *peers, enum ipoib_peer_mode mode,
                     long long int now)
{
    if (mode == peers->mode) {
        return;
    }
    peers->mode = mode;
    peers_clear(peers);
    if (mode == IPOIB_PEERS_STANDBY || mode == IPOIB_PEERS_SHARE) {
        peers_begin(peers, IPOIB_ROLE_WAITING, now);
    } else {
        peers->role = IPOIB_ROLE_ALONE;
        share_update(peers);
    }
}

void
ipoib_peers_loop(struct ipoib_peers *peers, long long int now)
{
    peers->n_loops++;
    peers->alone_since = now;
    if (peers->mode == IPOIB_PEERS_GUARD
        && peers->role == IPOIB_ROLE_ALONE) {
        /* Others are told at once, but as long as nobody is heard, this may be
         * somebody's trick to silence a gateway. */
        peers_begin(peers, IPOIB_ROLE_ACTIVE, now);
    }
}

void
ipoib_peers_restart(struct ipoib_peers *peers, long long int now)
{
    if (peers->role != IPOIB_ROLE_ALONE) {
        peers_begin(peers, IPOIB_ROLE_WAITING, now);
    }
}

static struct ipoib_peer *
peer_find(const struct ipoib_peers *peers, const struct ib_gid *gid)
{
    struct ipoib_peer *peer;

    LIST_FOR_EACH (peer, node, &peers->peers) {
        if (ib_gid_guid(&peer->gid) == ib_gid_guid(gid)) {
            return peer;
        }
    }
    return NULL;
}

bool
ipoib_peers_has(const struct ipoib_peers *peers, const struct ib_gid *gid)
{
    const struct ipoib_peer *peer;

    if (!peers->n_known) {
        return false;
    }
    peer = peer_find(peers, gid);
    return peer && peer->known;
}

/* Those that were heard on the fabric, or were not, and on Ethernet. */
static size_t
n_heard(const struct ipoib_peers *peers, bool fabric, bool ethernet)
{
    const struct ipoib_peer *peer;
    size_t n = 0;

    LIST_FOR_EACH (peer, node, &peers->peers) {
        n += ((peer->heard[0] != NEVER) == fabric
              && (peer->heard[1] != NEVER) == ethernet);
    }
    return n;
}

/* The peer 'gid', which was heard on one side; NULL if there are too many.
 * Those heard on one side only have places of their own, so that who makes up
 * GUIDs there keeps nobody from being found who is on both. */
static struct ipoib_peer *
peer_heard(struct ipoib_peers *peers, const struct ib_gid *gid, bool ethernet,
           long long int now)
{
    struct ipoib_peer *peer = peer_find(peers, gid);

    if (!peer || peer->heard[ethernet] == NEVER) {
        bool other = peer && peer->heard[!ethernet] != NEVER;

        if (n_heard(peers, ethernet ? other : true, ethernet ? true : other)
            >= IPOIB_MAX_PEERS) {
            return NULL;
        }
    }
    if (!peer) {
        peer = xzalloc(sizeof *peer);
        peer->heard[0] = peer->heard[1] = NEVER;
        ovs_list_push_back(&peers->peers, &peer->node);
        peers->n_peers++;
    }
    peer->gid = *gid;
    peer->heard[ethernet] = now;
    return peer;
}

/* 'peer' says that it leaves.  On Ethernet anybody could say so: unless the
 * fabric hears it again soon, it is gone. */
static void
peer_leaves(struct ipoib_peers *peers, struct ipoib_peer *peer, bool ethernet,
            long long int now)
{
    if (ethernet) {
        peer->heard[0] = MIN(peer->heard[0], now + IPOIB_PEER_LEAVE_TIME
                                             - IPOIB_PEER_TIMEOUT);
    } else {
        peer->heard[0] = peer->heard[1] = NEVER;
        peer->flags = 0;
    }
    peers->next = now;
}

const struct ipoib_peer *
ipoib_peers_receive(struct ipoib_peers *peers, const void *data, size_t len,
                    bool ethernet, long long int now)
{
    const struct ipoib_beacon *beacon = data;
    struct ipoib_peer *peer;

    if (peers->mode == IPOIB_PEERS_OFF || len < sizeof *beacon
        || ntohl(get_16aligned_be32(&beacon->magic)) != IPOIB_BEACON_MAGIC
        || beacon->version != IPOIB_BEACON_VERSION
        || (ntohs(beacon->pkey) ^ peers->pkey) & IB_PKEY_MASK
        || ib_gid_guid(&beacon->gid) == ib_gid_guid(&peers->gid)
        || !ib_gid_guid(&beacon->gid)) {
        return NULL;
    }
    if (beacon->flags & IPOIB_BEACON_LEAVING) {
        peer = peer_find(peers, &beacon->gid);
        if (peer) {
            peer_leaves(peers, peer, ethernet, now);
        }
        return NULL;
    }
    peer = peer_heard(peers, &beacon->gid, ethernet, now);
    if (!peer) {
        return NULL;
    }
    if (!ethernet) {
        peer->flags = beacon->flags;
    }
    if (peers->role == IPOIB_ROLE_ALONE
        && now - peer->heard[!ethernet] < IPOIB_PEER_TIMEOUT) {
        /* Another one has seen the loop first. */
        peers_begin(peers, IPOIB_ROLE_ACTIVE, now);
    }
    return peers->role == IPOIB_ROLE_ALONE ? NULL : peer;
}

/* The machine, or this process, may have stood still: a peer is not gone since
 * nobody was there to hear it.  It has as much time left as it had then. */
static void
peers_forgive_stall(struct ipoib_peers *peers, long long int now)
{
    long long int stall = now - peers->last_run;
    struct ipoib_peer *peer;

    peers->last_run = now;
    if (stall < IPOIB_PEER_STALL) {
        return;
    }
    LIST_FOR_EACH (peer, node, &peers->peers) {
        for (int i = 0; i < ARRAY_SIZE(peer->heard); i++) {
            if (peer->heard[i] != NEVER) {
                peer->heard[i] = MIN(peer->heard[i] + stall, now);
            }
        }
    }
}

/* Updates who is present and who is known; returns true if the first has
 * changed. */
static bool
peers_look(struct ipoib_peers *peers, long long int now)
{
    size_t n_known = peers->n_known;
    struct ipoib_peer *peer;
    bool changed = false;

    peers->n_present = peers->n_known = 0;
    LIST_FOR_EACH_SAFE (peer, node, &peers->peers) {
        bool present = (now - peer->heard[0] < IPOIB_PEER_TIMEOUT
                        && now - peer->heard[1] < IPOIB_PEER_TIMEOUT);

        changed |= present != peer->present;
        peer->present = present;
        peers->n_present += present;
        if (present) {
            peer->known_until = now + IPOIB_PEER_MEMORY;
        }
        peer->known = (present || (now < peer->known_until
                                   && peers->n_known < IPOIB_MAX_PEERS));
        peers->n_known += peer->known;
        if (!present && !peer->known && now - peer->heard[0] > GUARD_TIME
            && now - peer->heard[1] > GUARD_TIME) {
            ovs_list_remove(&peer->node);
            peers->n_peers--;
            free(peer);
        }
    }
    if (!changed && peers->n_known != n_known) {
        share_update(peers);
    }
    return changed;
}

/* Of those that are active the one with the lowest GUID remains so; if there
 * is none, the one with the lowest GUID becomes it. */
static bool
peers_is_winner(const struct ipoib_peers *peers)
{
    bool active = peers->role == IPOIB_ROLE_ACTIVE;
    const struct ipoib_peer *peer;

    LIST_FOR_EACH (peer, node, &peers->peers) {
        if (peer->present) {
            bool other = peer->flags & IPOIB_BEACON_ACTIVE;

            if (other > active
                || (other == active
                    && ib_gid_guid(&peer->gid) < ib_gid_guid(&peers->gid))) {
                return false;
            }
        }
    }
    return true;
}

/* True if all that are present want to share. */
static bool
peers_share(const struct ipoib_peers *peers)
{
    const struct ipoib_peer *peer;

    if (peers->mode != IPOIB_PEERS_SHARE) {
        return false;
    }
    LIST_FOR_EACH (peer, node, &peers->peers) {
        if (peer->present && !(peer->flags & IPOIB_BEACON_SHARE)) {
            return false;
        }
    }
    return true;
}

bool
ipoib_peers_run(struct ipoib_peers *peers, long long int now)
{
    enum ipoib_role old = peers->role, role;
    bool changed;

    if (old == IPOIB_ROLE_ALONE) {
        return false;
    }
    peers_forgive_stall(peers, now);
    changed = peers_look(peers, now);
    if (peers->n_present) {
        peers->alone_since = now;
    }
    if (peers->mode == IPOIB_PEERS_GUARD
        && now - peers->alone_since > GUARD_TIME) {
        role = IPOIB_ROLE_ALONE;
    } else if (old == IPOIB_ROLE_WAITING
               && now - peers->since < IPOIB_PEER_WAIT) {
        role = IPOIB_ROLE_WAITING;
    } else if (peers_share(peers)) {
        role = IPOIB_ROLE_SHARING;
    } else {
        role = peers_is_winner(peers) ? IPOIB_ROLE_ACTIVE
                                      : IPOIB_ROLE_STANDBY;
    }
    peers->role = role;
    if (changed || role != old) {
        share_update(peers);
    }
    return changed || role != old;
}

void
ipoib_peers_compose(const struct ipoib_peers *peers, bool leaving,
                    struct ipoib_beacon *beacon)
{
    memset(beacon, 0, sizeof *beacon);
    put_16aligned_be32(&beacon->magic, htonl(IPOIB_BEACON_MAGIC));
    beacon->version = IPOIB_BEACON_VERSION;
    beacon->flags = leaving ? IPOIB_BEACON_LEAVING
                    : (peers->role == IPOIB_ROLE_ACTIVE
                       ? IPOIB_BEACON_ACTIVE : 0)
                      | (peers->mode == IPOIB_PEERS_SHARE
                         ? IPOIB_BEACON_SHARE : 0);
    beacon->pkey = htons(peers->pkey);
    beacon->gid = peers->gid;
}
