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

#ifndef IPOIB_MCAST_H
#define IPOIB_MCAST_H 1

/* Multicast groups of a partition: membership at the SA, one join state a
 * group, and what the data path needs to send to them.
 *
 * The broadcast group is joined first; it gives the Q_Key, MTU, SL and the
 * rest that the other groups are joined with.  Failures are tried again after
 * 1, 2, 4 ... 16 s; an event resets that.
 *
 * Thread-safety: everything belongs to the control thread (with the HCA's
 * mutex), but for what is marked "reader". */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include "ipoib-path.h"
#include "ipoib-sa.h"
#include "ipoib-table.h"
#include "ipoib-verbs.h"
#include "ipoib-wire.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"
#include "util.h"

/* What the data path reads of a group: a cache line. */
struct ipoib_mcast_fast {
    ATOMIC(struct ibv_ah *) ah; /* NULL: not joined yet. */
    struct ib_gid mgid;
    atomic_uint32_t used;       /* Second of the last packet sent to it. */
    uint8_t pad[64 - 8 - 16 - 4];
};
BUILD_ASSERT_DECL(sizeof(struct ipoib_mcast_fast) == CACHE_LINE_SIZE);

enum ipoib_mcast_state {
    IPOIB_MCAST_IDLE,           /* Waits: for the broadcast group, a retry. */
    IPOIB_MCAST_JOINING,
    IPOIB_MCAST_JOINED,         /* May be joining again after an event. */
    IPOIB_MCAST_LEAVING,
};

/* Why a group is wanted, bits. */
enum {
    IPOIB_MCAST_RECV = 1 << 0,  /* To receive: full member, attached. */
    IPOIB_MCAST_SEND = 1 << 1,  /* To send only. */
    IPOIB_MCAST_ROUTER = 1 << 2, /* To receive, as long as there is such a
                                  * group: non-member, attached. */
};

struct ipoib_mcast_group {
    struct hmap_node node;      /* In ipoib_mcast, by MGID. */
    uint32_t slot;
    struct ib_gid mgid;
    unsigned int want;          /* IPOIB_MCAST_*. */
    unsigned int n_recv;        /* Users that want to receive. */
    unsigned int router_gen;    /* For the user of IPOIB_MCAST_ROUTER. */
    enum ipoib_mcast_state state;
    uint8_t join_state;         /* IB_JOIN_*, what the SA has. */
    uint16_t mlid;              /* Host byte order, as all that follow. */
    uint8_t mtu, rate, sl, tclass, hop_limit;
    uint32_t flow_label, qkey;
    struct ibv_ah *ah;          /* If JOINED. */
    bool attached;              /* The base QP is attached. */
    uint16_t last_status;       /* SA's refusal, 0: none. */
    int last_error;
    unsigned int backoff;       /* Failures: 1, 2, 4 ... seconds to wait. */
    long long int joined;       /* time_msec(). */

    /* For the owner: packets that wait for the join. */
    struct ovs_list wait;
    size_t n_wait;

    /* Private to ipoib-mcast*.c. */
    struct ipoib_mcast *mcast;
    struct ipoib_mcast_sender *sender; /* For whom it was joined, if that is
                                        * limited. */
    struct ovs_list sender_node; /* If 'sender'. */
    struct ovs_list todo;       /* In ipoib_mcast's 'todo', or empty. */
    struct ipoib_sa_request *request;
    long long int next_try;
    bool again;                 /* To be joined again. */
    bool known;                 /* Was joined: 'mtu' to 'qkey' are set. */
    bool create;                /* Broadcast group: join with all of them. */
    struct ibv_ah_attr attr;    /* Of 'ah'. */
    uint16_t attached_mlid;     /* If 'attached'. */
};

struct ipoib_mcast_sender;

struct ipoib_mcast_ops {
    /* 'group' was joined, was joined again with other parameters, was refused,
     * or is being left ('state', 'last_status').  For the broadcast group this
     * brings Q_Key and MTU. */
    void (*changed)(void *aux, struct ipoib_mcast_group *group);
    /* 'group' is about to go: release 'wait'. */
    void (*removed)(void *aux, struct ipoib_mcast_group *group);
    /* Attach to or detach from the group the QP that receives; 0 or errno. */
    int (*attach)(void *aux, const struct ib_gid *mgid, uint16_t mlid);
    int (*detach)(void *aux, const struct ib_gid *mgid, uint16_t mlid);
};

struct ipoib_mcast_params {
    struct ib_gid port_gid;
    uint8_t port;
    uint16_t pkey;              /* Host byte order, with full-member bit. */
    uint16_t lid;
    uint8_t port_mtu;           /* Active MTU, IB enum. */
    bool active;                /* Port is Active and has the P_Key. */
};

struct ipoib_mcast;

struct ipoib_mcast *
ipoib_mcast_create(const struct ipoib_verbs *, struct ibv_pd *,
                   struct ipoib_sa *, struct ipoib_ah_reaper *,
                   const struct ipoib_mcast_ops *, void *aux);
/* Leaves nothing at the SA by itself: see ipoib_mcast_leave_all().  Calls
 * 'detach' for what is attached, so that the QP must still be there, and
 * 'removed' for each group. */
void ipoib_mcast_destroy(struct ipoib_mcast *);
/* Joins the broadcast group once 'active'; a port that became active, or a
 * changed GID, LID or P_Key joins all again.  (A P_Key is part of each MGID:
 * groups keep their users, but get another 'mgid' and 'slot', and 'changed' is
 * called for them.) */
void ipoib_mcast_set_params(struct ipoib_mcast *,
                            const struct ipoib_mcast_params *);

/* The group, which is made and joined if need be.  For IPOIB_MCAST_RECV each
 * call is one user more; IPOIB_MCAST_SEND lasts until nothing was sent for
 * IPOIB_MCAST_IDLE_TIMEOUT seconds; IPOIB_MCAST_ROUTER is there or not,
 * whoever asks.  Returns NULL if there are too many groups
 * or 'mgid' is not an MGID. */
#define IPOIB_MCAST_MAX 16383
#define IPOIB_MCAST_IDLE_TIMEOUT 120
struct ipoib_mcast_group *ipoib_mcast_want(struct ipoib_mcast *,
                                           const struct ib_gid *mgid,
                                           unsigned int why);
/* One user of IPOIB_MCAST_RECV less; the last one leaves (or stays as a
 * sender). */
void ipoib_mcast_unwant(struct ipoib_mcast *, const struct ib_gid *mgid);

/* How many groups there may be, for all purposes, and for each that sends
 * without being a member.  Of all groups, senders get half at most, and
 * routers a quarter. */
struct ipoib_mcast_limits {
    size_t groups, host_groups;
};
void ipoib_mcast_set_limits(struct ipoib_mcast *,
                            const struct ipoib_mcast_limits *);
/* As ipoib_mcast_want() for IPOIB_MCAST_SEND, on account of 'sender', whoever
 * that number stands for.  NULL also if it has its share of groups. */
struct ipoib_mcast_group *ipoib_mcast_want_send(struct ipoib_mcast *,
                                                const struct ib_gid *mgid,
                                                uint32_t sender);
struct ipoib_mcast_stats {
    size_t n_groups, n_send, n_router;
    uint64_t n_send_refused, n_router_refused;
};
void ipoib_mcast_get_stats(const struct ipoib_mcast *,
                           struct ipoib_mcast_stats *);

/* Ends IPOIB_MCAST_ROUTER, which ends by itself if the SA does not know the
 * group. */
void ipoib_mcast_unwant_router(struct ipoib_mcast *,
                               const struct ib_gid *mgid);
struct ipoib_mcast_group *ipoib_mcast_find(const struct ipoib_mcast *,
                                           const struct ib_gid *mgid);
/* The broadcast group, joined, or NULL. */
struct ipoib_mcast_group *ipoib_mcast_broadcast(const struct ipoib_mcast *);

/* What the SA is told. */
struct ipoib_mcast_policy {
    bool leave;                 /* Groups are left (the default). */
    bool leave_broadcast;       /* The broadcast group as well, at the end. */
    bool refresh;               /* Groups are joined again every
                                 * IPOIB_MCAST_REFRESH ms or a bit sooner. */
};
#define IPOIB_MCAST_REFRESH 60000
void ipoib_mcast_set_policy(struct ipoib_mcast *,
                            const struct ipoib_mcast_policy *);

/* Join everything again, at once (reregister, SM change, LID change ...);
 * data keeps flowing on the old AHs meanwhile. */
void ipoib_mcast_rejoin_all(struct ipoib_mcast *);
/* Detaches from all groups, and sends a leave for each but the broadcast
 * group, once, without waiting for answers.  Nothing is joined any more until
 * the next ipoib_mcast_set_params(). */
void ipoib_mcast_leave_all(struct ipoib_mcast *);

/* The queue pair is about to go: detaches it from all groups.  The next
 * ipoib_mcast_run() attaches its successor. */
void ipoib_mcast_detach_all(struct ipoib_mcast *);

/* Call it after ipoib_sa_run(). */
void ipoib_mcast_run(struct ipoib_mcast *, long long int now);
void ipoib_mcast_wait(struct ipoib_mcast *);
void ipoib_mcast_for_each(const struct ipoib_mcast *,
                          void (*cb)(const struct ipoib_mcast_group *,
                                     void *aux), void *aux);
const char *ipoib_mcast_state_to_string(enum ipoib_mcast_state);
/* Why the last try to join the group failed, for people, or NULL. */
const char *ipoib_mcast_failure(const struct ipoib_mcast_group *);

/* Readers: IPOIB_SLOT_NONE if there is no such group. */
uint32_t ipoib_mcast_lookup(const struct ipoib_mcast *, const struct ib_gid *);
struct ipoib_mcast_fast *ipoib_mcast_fast(const struct ipoib_mcast *,
                                          uint32_t slot);

#endif /* ipoib-mcast.h */
