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

#ifndef IPOIB_NEIGH_H
#define IPOIB_NEIGH_H 1

/* Neighbours: the IPoIB nodes of a partition.
 *
 * A neighbour is its 20-byte address without the flags.  On the bridge it
 * appears under its stand-in MAC.  What the data path reads of a neighbour is
 * one cache line, 'struct ipoib_neigh_fast', in an array that is indexed by
 * slot; everything else is in 'struct ipoib_neigh', which only the writer
 * sees.
 *
 * Thread-safety: one writer (the control thread, with the HCA's mutex).  The
 * functions that are marked "reader" may run at the same time on any thread
 * that is an RCU reader; a slot that a reader has found stays its own until
 * it quiesces, also if the neighbour goes. */

#include <netinet/in.h>
#include <infiniband/verbs.h>
#include "ipoib-packet.h"
#include "ipoib-table.h"
#include "ipoib-prio.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "util.h"

/* Ways to a neighbour by class of options:prio-map; NULL: as class 0. */
struct ipoib_neigh_ahs {
    ATOMIC(struct ibv_ah *) ah[IPOIB_MAX_CLASSES]; /* Acquire to read. */
};

/* What the data path reads.  Written by the writer only, but for 'used'.
 *
 * The tables of the data path are the array of these and the indexes that lead
 * from a stand-in MAC and from a (LID, QPN) to it: all that it reads of a
 * neighbour to translate a packet.  (The indexes by GID and by IP are for
 * packets from somebody who is not known by (LID, QPN).) */
struct ipoib_neigh_fast {
    ATOMIC(struct ibv_ah *) ah; /* NULL: no path yet.  Acquire to read. */
    uint64_t mac;               /* Stand-in MAC, by ipoib_frame_mac(). */
    ATOMIC(uint64_t) lid_key;   /* ipoib_neigh_lid_key(), if nobody else has
                                 * the same; or 0. */
    struct ib_gid gid;
    uint32_t qpn;
    atomic_uint32_t used;       /* Second of the last packet either way,
                                 * by whoever forwards it. */
    ATOMIC(struct ipoib_neigh_ahs *) ahs; /* Of other classes, or NULL.
                                           * Acquire to read. */
    uint32_t mtu;               /* Largest IP packet that the path takes. */
    uint32_t pad;
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_neigh_fast) == CACHE_LINE_SIZE);

/* A stand-in MAC that the neighbour had under an earlier QPN. */
struct ipoib_neigh_alias {
    struct ovs_list node;       /* In 'aliases', latest first. */
    struct ovs_list by_age;     /* In ipoib_neigh_table, oldest first. */
    struct ipoib_neigh *neigh;
    struct eth_addr mac;
    uint32_t qpn;               /* The earlier QPN. */
    long long int until;        /* time_msec() at which it goes. */
};

/* How long an alias lives: as long as hosts may keep the old MAC. */
#define IPOIB_NEIGH_ALIAS_MS (20 * 60 * 1000)
#define IPOIB_NEIGH_MAX_ALIASES 8
#define IPOIB_NEIGH_MAX_IPS 64

/* Lists of neighbours, by slots. */
enum ipoib_neigh_order {
    IPOIB_NEIGH_LRU,            /* All, oldest first. */
    IPOIB_NEIGH_BY_SOURCE,      /* The same of those of a source. */
    IPOIB_NEIGH_BY_PATH,        /* For the owner of the table. */
    IPOIB_NEIGH_N_ORDERS
};
struct ipoib_neigh_list {
    uint32_t first, last;       /* IPOIB_SLOT_NONE if there is none. */
};
#define IPOIB_NEIGH_LIST_INITIALIZER { IPOIB_SLOT_NONE, IPOIB_SLOT_NONE }

/* What few neighbours have; made by ipoib_neigh_more(). */
struct ipoib_neigh_more {
    struct in6_addr *ips;       /* But the latest one; latest first. */
    size_t n_ips, allocated_ips;
    struct ovs_list aliases;    /* Of struct ipoib_neigh_alias. */

    /* For the owner of the table; 0 and empty at first. */
    void *prio;                 /* Paths of classes other than 0. */
    struct ovs_list wait;       /* Packets that wait for the path. */
    size_t n_wait;
    unsigned int n_foreign;     /* Packets seen that hosts sent it and that
                                 * were not for itself. */
    long long int foreign;      /* When the last one was, time_msec(). */
};

/* There may be millions of them. */
struct ipoib_neigh {
    struct ipoib_neigh_more *more; /* Or NULL. */
    void *path;                 /* For the owner of the table. */
    void *source;               /* Private: where it was heard from. */
    struct {
        uint32_t prev, next;    /* Slots, or IPOIB_SLOT_NONE. */
    } links[IPOIB_NEIGH_N_ORDERS];
    struct in6_addr ip;         /* The latest one; unspecified if none.  See
                                 * ipoib_neigh_ip(). */
    struct ipoib_addr addr;     /* Flags 0. */
    uint32_t slot;
    uint32_t confirmed;         /* Last ARP or ND from it, seconds. */
    uint32_t queued;            /* Private: when it was put at its place in
                                 * the lists by age, seconds. */
    struct eth_addr mac;        /* Stand-in MAC. */
    uint16_t lid;               /* SLID of the last ARP or ND, 0: unknown. */
    uint16_t attempt;           /* See ipoib_standin_mac(). */
    bool is_router : 1;         /* Sent an RA, or an NA with the R flag. */
    bool forwards : 1;          /* Hosts send it what is not for itself. */
    bool routes : 1;            /* Either: see ipoib_neigh_set_routes(). */
};

struct ipoib_neigh_table;

/* What the owner is told of; called within the writer's functions. */
struct ipoib_neigh_ops {
    /* 'neigh' is about to go, and cannot be found any more: release 'path',
     * 'prio' and 'wait'.  Must not call a writer's function. */
    void (*removed)(void *aux, struct ipoib_neigh *);
};

/* A table for at most 'max' neighbours of partition 'pkey' (host byte
 * order). */
struct ipoib_neigh_table *
ipoib_neigh_table_create(uint16_t pkey, size_t max,
                         const struct ipoib_neigh_ops *, void *aux);
void ipoib_neigh_table_destroy(struct ipoib_neigh_table *);
/* The stand-in MACs of neighbours are those that a gateway of port 'guid'
 * gives that shares them with others (see ipoib_share_mac()), or if that is 0,
 * those that all give.  For neighbours that come from now on. */
void ipoib_neigh_table_set_share(struct ipoib_neigh_table *, uint64_t guid);
/* Least recently used ones go if there are more. */
void ipoib_neigh_table_set_max(struct ipoib_neigh_table *, size_t max);
size_t ipoib_neigh_table_count(const struct ipoib_neigh_table *);
/* Bytes of memory that the table takes: those of the tables of the data path
 * (see struct ipoib_neigh_fast), and all.  Looks at each neighbour. */
void ipoib_neigh_table_memory(const struct ipoib_neigh_table *,
                              size_t *fast, size_t *all);

/* What ipoib_neigh_learn() found, a set of bits. */
enum {
    IPOIB_NEIGH_NEW      = 1 << 0, /* The neighbour was not known. */
    IPOIB_NEIGH_NEW_IP   = 1 << 1, /* The address was not known. */
    IPOIB_NEIGH_MOVED_IP = 1 << 2, /* It was another neighbour's. */
    IPOIB_NEIGH_REBORN   = 1 << 3, /* The same GUID and IP with another QPN:
                                    * the old stand-in MAC is an alias now. */
    IPOIB_NEIGH_NEW_LID  = 1 << 4, /* Of one that was known: 'slid' differs
                                    * from the last one, or the GID prefix
                                    * does. */
};

/* Whether a neighbour was reborn is a guess.  Several that live may share a
 * GUID (child interfaces, hosts behind another gateway), and IP addresses move
 * between them as they do between others.  So, if the neighbour that had the
 * IP has another one of the same family, the IP has moved
 * (IPOIB_NEIGH_MOVED_IP), and only with the last one it is taken for dead.  A
 * neighbour that was taken for dead by mistake gets its stand-in MAC back from
 * the aliases when it is heard. */

/* Learns, at time 'now' (time_msec()), that 'addr' (a station's) lives, has
 * 'ip' (NULL or the unspecified address: nothing is said of an IP) and was
 * heard from 'slid' (0: unknown).  Makes the neighbour if there is none, and
 * evicts the least recently used one if the table is full: one of those from
 * the same LID, if these are more than an eighth of the table.  A neighbour
 * keeps at most 64 addresses: the oldest goes.  The result is valid until the
 * next call of a writer's function.  '*changes' gets the bits above.
 *
 * Returns NULL, and has changed nothing, only if millions of neighbours went
 * without an RCU grace period since (see ipoib-slots.h). */
struct ipoib_neigh *ipoib_neigh_learn(struct ipoib_neigh_table *,
                                      const struct ipoib_addr *addr,
                                      const struct in6_addr *ip,
                                      uint16_t slid, long long int now,
                                      unsigned int *changes);

/* Writer's look-ups; NULL if there is none. */
struct ipoib_neigh *ipoib_neigh_find(const struct ipoib_neigh_table *,
                                     const struct ipoib_addr *);
struct ipoib_neigh *ipoib_neigh_find_ip(const struct ipoib_neigh_table *,
                                        const struct in6_addr *);
/* By stand-in MAC or alias. */
struct ipoib_neigh *ipoib_neigh_find_mac(const struct ipoib_neigh_table *,
                                         struct eth_addr);
struct ipoib_neigh *ipoib_neigh_of_slot(const struct ipoib_neigh_table *,
                                        uint32_t slot);

/* Its IP addresses, latest first.  IPv4 addresses are v4-mapped. */
size_t ipoib_neigh_n_ips(const struct ipoib_neigh *);
const struct in6_addr *ipoib_neigh_ip(const struct ipoib_neigh *, size_t i);

/* Time of the last ARP or ND from it: time_msec() without milliseconds. */
static inline long long int
ipoib_neigh_confirmed(const struct ipoib_neigh *neigh)
{
    return neigh->confirmed * 1000LL;
}

/* The part that few have; it is made if it is not there. */
struct ipoib_neigh_more *ipoib_neigh_more(struct ipoib_neigh *);
/* Frees that part again if nothing is in it. */
void ipoib_neigh_trim(struct ipoib_neigh *);

/* Lists. */
static inline void
ipoib_neigh_list_init(struct ipoib_neigh_list *list)
{
    list->first = list->last = IPOIB_SLOT_NONE;
}

static inline bool
ipoib_neigh_list_is_empty(const struct ipoib_neigh_list *list)
{
    return list->first == IPOIB_SLOT_NONE;
}

void ipoib_neigh_list_push_back(struct ipoib_neigh_table *,
                                struct ipoib_neigh_list *,
                                enum ipoib_neigh_order, struct ipoib_neigh *);
void ipoib_neigh_list_remove(struct ipoib_neigh_table *,
                             struct ipoib_neigh_list *,
                             enum ipoib_neigh_order, struct ipoib_neigh *);

/* 'NEIGH' must stay where it is meanwhile. */
#define IPOIB_NEIGH_LIST_FOR_EACH(NEIGH, ORDER, LIST, TABLE)            \
    for (NEIGH = ipoib_neigh_of_slot(TABLE, (LIST)->first); NEIGH;      \
         NEIGH = ipoib_neigh_of_slot(TABLE, (NEIGH)->links[ORDER].next))

/* True if 'mac' was a neighbour's stand-in MAC that was forgotten of late:
 * some thousands of them are kept in mind. */
bool ipoib_neigh_was_forgotten(const struct ipoib_neigh_table *,
                               struct eth_addr mac);

/* No neighbour has the address any more. */
void ipoib_neigh_forget_ip(struct ipoib_neigh_table *,
                           const struct in6_addr *);
void ipoib_neigh_remove(struct ipoib_neigh_table *, struct ipoib_neigh *);
size_t ipoib_neigh_flush(struct ipoib_neigh_table *); /* How many went. */

/* Publishes the path of 'neigh': readers see 'ah' (NULL: no more) and 'mtu'
 * from now on.  The caller destroys the old AH after an RCU grace period. */
void ipoib_neigh_set_ah(struct ipoib_neigh_table *, struct ipoib_neigh *,
                        struct ibv_ah *ah, uint16_t mtu);
/* The same for other classes.  The caller frees the old 'ahs' after an RCU
 * grace period. */
void ipoib_neigh_set_ahs(struct ipoib_neigh_table *, struct ipoib_neigh *,
                         struct ipoib_neigh_ahs *ahs);

/* Publishes whether 'neigh' sends, and takes, packets for others. */
void ipoib_neigh_set_routes(struct ipoib_neigh_table *, struct ipoib_neigh *,
                            bool routes);
/* 'neigh' is known by 'lid' (base LID, not 0) from now on. */
void ipoib_neigh_set_lid(struct ipoib_neigh_table *, struct ipoib_neigh *,
                         uint16_t lid);

/* Ages at most 'budget' neighbours, going round the table from call to call:
 * removes those that neither sent nor were sent anything for 'idle' ms.
 * Returns the number removed.  Ends aliases as well.
 *
 * Does not look again at a thousand neighbours (IPOIB_SLOTS_CHUNK) before one
 * of them can be that old; they count all the same. */
size_t ipoib_neigh_age(struct ipoib_neigh_table *, long long int now,
                       long long int idle, size_t budget);

/* Calls 'cb' for at most 'budget' neighbours from position '*pos' (0 at
 * first) on, and updates '*pos'; returns false at the end. */
bool ipoib_neigh_walk(const struct ipoib_neigh_table *, size_t *pos,
                      size_t budget,
                      void (*cb)(struct ipoib_neigh *, void *aux), void *aux);
/* time_msec() of the last packet, without milliseconds. */
long long int ipoib_neigh_used(const struct ipoib_neigh_table *,
                               const struct ipoib_neigh *);

/* Readers.  Slots are IPOIB_SLOT_NONE where nothing is found. */
static inline uint64_t
ipoib_neigh_lid_key(uint32_t lid, uint32_t qpn)
{
    return (uint64_t) qpn << 16 | lid;
}
struct ipoib_neigh_fast *ipoib_neigh_fast(const struct ipoib_neigh_table *,
                                          uint32_t slot);
/* By stand-in MAC or alias, as eth_addr_to_uint64(). */
void ipoib_neigh_by_mac(const struct ipoib_neigh_table *,
                        const uint64_t macs[], size_t n, uint32_t slots[]);
/* By ipoib_neigh_lid_key() of the base LID (path bits 0).  A pair that belongs
 * to more than one neighbour (virtual ports share LIDs) is not found. */
void ipoib_neigh_by_lid(const struct ipoib_neigh_table *,
                        const uint64_t keys[], size_t n, uint32_t slots[]);
/* The GID prefix does not count, as QPN and GUID are the identity. */
uint32_t ipoib_neigh_by_gid(const struct ipoib_neigh_table *,
                            const struct ib_gid *, uint32_t qpn);
uint32_t ipoib_neigh_by_ip(const struct ipoib_neigh_table *,
                           const struct in6_addr *);
/* The only router of a LID; NONE if there are several. */
uint32_t ipoib_neigh_router_of_lid(const struct ipoib_neigh_table *,
                                   uint16_t lid);
/* The only neighbour of a LID, whatever its QPN; NONE if there are several. */
uint32_t ipoib_neigh_by_lid_alone(const struct ipoib_neigh_table *,
                                  uint16_t lid);

/* (The data path has loops of its own: see ipoib-neigh-private.h.) */

/* The key of a MAC that nobody has. */
#define IPOIB_NEIGH_NO_KEY UINT64_MAX

/* Notes that slot's neighbour was used in second 'now'.  Writes at most once a
 * second. */
static inline void
ipoib_neigh_mark_used(struct ipoib_neigh_fast *fast, uint32_t now)
{
    uint32_t used;

    atomic_read_relaxed(&fast->used, &used);
    if (OVS_UNLIKELY(used != now)) {
        atomic_store_relaxed(&fast->used, now);
    }
}

#endif /* ipoib-neigh.h */
