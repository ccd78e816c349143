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

#ifndef IPOIB_MCAST_PRIVATE_H
#define IPOIB_MCAST_PRIVATE_H 1

/* What ipoib-mcast.c (which groups, and when), -join.c (requests to the SA and
 * their answers) need of each other. */

#include "ipoib-mcast.h"

struct ds;

#define MCAST_WINDOW 32         /* Requests under way, at most. */
#define MCAST_BACKOFF_MAX 16    /* Seconds, after 1, 2, 4 and 8. */
#define MCAST_SCAN_PAUSE 100    /* Between walks over all groups, ms. */

/* What readers see of groups stays where it is. */
#define MCAST_N_SLOTS 32768
BUILD_ASSERT_DECL(MCAST_N_SLOTS >= 2 * IPOIB_MCAST_MAX);

/* A slot is used again for another group only when no reader can have it in
 * hand any more, by far (unless all slots were used up within that time). */
#define MCAST_SLOT_REST 10000   /* ms */
struct mcast_free_slot {
    struct ovs_list node;
    uint32_t slot;
    long long int freed;
};

struct ipoib_mcast {
    const struct ipoib_verbs *verbs;
    struct ibv_pd *pd;
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    const struct ipoib_mcast_ops *ops;
    void *aux;

    struct ipoib_mcast_params params;
    bool have_params;
    struct ipoib_mcast_policy policy;

    struct hmap groups;
    struct ipoib_mcast_group *broadcast; /* NULL: no parameters yet. */
    struct ovs_list todo;       /* Groups to look at. */
    unsigned int n_requests;
    size_t n_router;            /* Groups with IPOIB_MCAST_ROUTER. */
    uint64_t n_router_refused;
    struct ipoib_mcast_limits limits;

    /* ipoib-mcast-send.c. */
    struct hmap senders;        /* Of struct ipoib_mcast_sender. */
    size_t n_send;              /* Groups of theirs. */
    uint64_t n_send_refused;
    long long int next_release;
    bool settled;               /* The SA's capabilities are known. */
    long long int now;          /* Of the last run. */
    long long int next_scan;
    long long int last_scan;

    /* For readers. */
    struct ipoib_table *table;
    uint32_t basis;
    struct ipoib_mcast_fast *slots; /* MCAST_N_SLOTS, mapped. */
    uint32_t n_slots;           /* Ever used. */
    struct ovs_list free_slots; /* Oldest first. */
};

/* ipoib-mcast.c. */
long long int ipoib_mcast_now(const struct ipoib_mcast *);
/* Has ipoib_mcast_run() look at all groups at 'when'. */
void ipoib_mcast_schedule(struct ipoib_mcast *, long long int when);
void ipoib_mcast_enqueue(struct ipoib_mcast_group *);
void ipoib_mcast_enqueue_all(struct ipoib_mcast *);
bool ipoib_mcast_is_broadcast(const struct ipoib_mcast_group *);
void ipoib_mcast_changed(struct ipoib_mcast_group *);
const char *ipoib_mcast_format(const struct ipoib_mcast_group *, struct ds *);
/* Makes 'ah' the AH of the group, also for readers, and retires the one
 * before, if it is another one. */
void ipoib_mcast_set_ah(struct ipoib_mcast_group *, struct ibv_ah *ah);
void ipoib_mcast_cancel(struct ipoib_mcast_group *);
int ipoib_mcast_attach(struct ipoib_mcast_group *);
void ipoib_mcast_detach(struct ipoib_mcast_group *);
/* Ends the group, of which the SA knows nothing (any more). */
void ipoib_mcast_group_remove(struct ipoib_mcast_group *);

/* ipoib-mcast-join.c. */
uint8_t ipoib_mcast_join_state(const struct ipoib_mcast_group *);
void ipoib_mcast_send_join(struct ipoib_mcast_group *);
void ipoib_mcast_leave(struct ipoib_mcast_group *);
void ipoib_mcast_leave_record(const struct ipoib_mcast_group *,
                              struct ib_mcmember_record *);
/* Has the group joined again, from the start. */
void ipoib_mcast_mark_again(struct ipoib_mcast_group *);
/* When the group, which is joined, is to be joined again in case that somebody
 * else has left it. */
long long int ipoib_mcast_refresh_due(const struct ipoib_mcast_group *);

/* ipoib-mcast-send.c. */
/* Ends IPOIB_MCAST_SEND. */
void ipoib_mcast_drop_send(struct ipoib_mcast_group *);
void ipoib_mcast_release_idle(struct ipoib_mcast *);

/* True if packets to the group are received: the queue pair is attached. */
static inline bool
ipoib_mcast_receives(const struct ipoib_mcast_group *group)
{
    return group->want & (IPOIB_MCAST_RECV | IPOIB_MCAST_ROUTER);
}

/* 'group' is not wanted for a router any more. */
static inline void
ipoib_mcast_drop_router(struct ipoib_mcast_group *group)
{
    if (group->want & IPOIB_MCAST_ROUTER) {
        group->want &= ~IPOIB_MCAST_ROUTER;
        group->mcast->n_router--;
    }
}

#endif /* ipoib-mcast-private.h */
