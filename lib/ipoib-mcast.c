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
#include "ipoib-mcast-private.h"

#include <errno.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "ipoib-packet.h"
#include "ipoib-pages.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "random.h"
#include "timeval.h"

VLOG_DEFINE_THIS_MODULE(ipoib_mcast);

COVERAGE_DEFINE(ipoib_mcast_too_many);

#define MCAST_SCOPE 2           /* Of the broadcast group: link-local. */

long long int
ipoib_mcast_now(const struct ipoib_mcast *mcast)
{
    return MAX(mcast->now, time_msec());
}

/* Has ipoib_mcast_run() look at all groups at 'when'. */
void
ipoib_mcast_schedule(struct ipoib_mcast *mcast, long long int when)
{
    mcast->next_scan = MIN(mcast->next_scan, when);
}

void
ipoib_mcast_enqueue(struct ipoib_mcast_group *group)
{
    if (ovs_list_is_empty(&group->todo)) {
        ovs_list_push_back(&group->mcast->todo, &group->todo);
    }
}

void
ipoib_mcast_enqueue_all(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        ipoib_mcast_enqueue(group);
    }
}

static void
mcast_dequeue(struct ipoib_mcast_group *group)
{
    ovs_list_remove(&group->todo);
    ovs_list_init(&group->todo);
}

bool
ipoib_mcast_is_broadcast(const struct ipoib_mcast_group *group)
{
    return group == group->mcast->broadcast;
}

void
ipoib_mcast_changed(struct ipoib_mcast_group *group)
{
    group->mcast->ops->changed(group->mcast->aux, group);
}

const char *
ipoib_mcast_format(const struct ipoib_mcast_group *group, struct ds *ds)
{
    ds_clear(ds);
    ib_gid_format(&group->mgid, ds);
    return ds_cstr(ds);
}

/* Slots: what readers see. */

static uint64_t
mcast_key(const struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    ovs_u128 hash;

    hash_bytes128(mgid, sizeof *mgid, mcast->basis, &hash);
    return hash.u64.lo ? hash.u64.lo : 1;
}

struct ipoib_mcast_fast *
ipoib_mcast_fast(const struct ipoib_mcast *mcast, uint32_t slot)
{
    return &mcast->slots[slot];
}

uint32_t
ipoib_mcast_lookup(const struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    uint32_t slot = ipoib_table_lookup(mcast->table, mcast_key(mcast, mgid));

    return (slot != IPOIB_SLOT_NONE
            && ib_gid_equals(&ipoib_mcast_fast(mcast, slot)->mgid, mgid)
            ? slot : IPOIB_SLOT_NONE);
}

static uint32_t
mcast_alloc_slot(struct ipoib_mcast *mcast)
{
    if (!ovs_list_is_empty(&mcast->free_slots)) {
        struct mcast_free_slot *f
            = CONTAINER_OF(ovs_list_front(&mcast->free_slots),
                           struct mcast_free_slot, node);

        if (ipoib_mcast_now(mcast) >= f->freed + MCAST_SLOT_REST
            || mcast->n_slots >= MCAST_N_SLOTS) {
            uint32_t slot = f->slot;

            ovs_list_remove(&f->node);
            free(f);
            return slot;
        }
    }
    ovs_assert(mcast->n_slots < MCAST_N_SLOTS);
    return mcast->n_slots++;
}

/* Gives 'group' a slot and makes readers find it. */
static void
mcast_publish(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    uint64_t key = mcast_key(mcast, &group->mgid);
    struct ipoib_mcast_fast *fast;

    group->slot = mcast_alloc_slot(mcast);
    fast = ipoib_mcast_fast(mcast, group->slot);
    fast->mgid = group->mgid;
    atomic_store_relaxed(&fast->ah, group->ah);
    atomic_store_relaxed(&fast->used, time_now());
    /* Keys of 64 bits under a random basis do not collide in practice; if two
     * do, the older one keeps its place. */
    if (ipoib_table_lookup(mcast->table, key) == IPOIB_SLOT_NONE) {
        ipoib_table_insert(mcast->table, key, group->slot);
    }
}

static void
mcast_unpublish(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    uint64_t key = mcast_key(mcast, &group->mgid);
    struct mcast_free_slot *f;

    if (ipoib_table_lookup(mcast->table, key) == group->slot) {
        ipoib_table_remove(mcast->table, key);
    }
    atomic_store_explicit(&ipoib_mcast_fast(mcast, group->slot)->ah, NULL,
                          memory_order_release);
    f = xmalloc(sizeof *f);
    f->slot = group->slot;
    f->freed = ipoib_mcast_now(mcast);
    ovs_list_push_back(&mcast->free_slots, &f->node);
    group->slot = IPOIB_SLOT_NONE;
}

/* Makes 'ah' the AH of 'group', also for readers, and retires the one before,
 * if it is another one. */
void
ipoib_mcast_set_ah(struct ipoib_mcast_group *group, struct ibv_ah *ah)
{
    struct ibv_ah *old = group->ah;

    group->ah = ah;
    atomic_store_explicit(&ipoib_mcast_fast(group->mcast, group->slot)->ah, ah,
                          memory_order_release);
    if (old != ah) {
        ipoib_ah_retire(group->mcast->reaper, old);
    }
}

/* Creation and end. */

struct ipoib_mcast *
ipoib_mcast_create(const struct ipoib_verbs *verbs, struct ibv_pd *pd,
                   struct ipoib_sa *sa, struct ipoib_ah_reaper *reaper,
                   const struct ipoib_mcast_ops *ops, void *aux)
{
    struct ipoib_mcast *mcast = xzalloc(sizeof *mcast);

    mcast->verbs = verbs;
    mcast->pd = pd;
    mcast->sa = sa;
    mcast->reaper = reaper;
    mcast->ops = ops;
    mcast->aux = aux;
    hmap_init(&mcast->groups);
    hmap_init(&mcast->senders);
    mcast->limits = (struct ipoib_mcast_limits) {
        IPOIB_MCAST_MAX, IPOIB_MCAST_MAX
    };
    ovs_list_init(&mcast->todo);
    ovs_list_init(&mcast->free_slots);
    mcast->next_scan = LLONG_MAX;
    mcast->policy.leave = true;
    mcast->table = ipoib_table_create(16);
    mcast->basis = random_uint32();
    mcast->slots = ipoib_pages_map(MCAST_N_SLOTS * sizeof *mcast->slots);
    return mcast;
}

/* A new group, which nobody wants yet.  NULL if there are too many. */
static struct ipoib_mcast_group *
mcast_group_create(struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group;

    /* Those that are being left don't count. */
    if (hmap_count(&mcast->groups) >= MIN(mcast->limits.groups + MCAST_WINDOW,
                                          IPOIB_MCAST_MAX)) {
        COVERAGE_INC(ipoib_mcast_too_many);
        return NULL;
    }
    group = xzalloc(sizeof *group);
    group->mcast = mcast;
    group->mgid = *mgid;
    group->state = IPOIB_MCAST_IDLE;
    ovs_list_init(&group->wait);
    ovs_list_init(&group->todo);
    mcast_publish(group);
    hmap_insert(&mcast->groups, &group->node,
                hash_bytes(mgid, sizeof *mgid, 0));
    return group;
}

void
ipoib_mcast_cancel(struct ipoib_mcast_group *group)
{
    if (group->request) {
        ipoib_sa_cancel(group->mcast->sa, group->request);
        group->request = NULL;
        group->mcast->n_requests--;
    }
}

void
ipoib_mcast_detach(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;

    if (group->attached) {
        int error = mcast->ops->detach(mcast->aux, &group->mgid,
                                       group->attached_mlid);
        if (error) {
            VLOG_DBG("failed to detach from MLID 0x%04"PRIx16" (%s)",
                     group->attached_mlid, ovs_strerror(error));
        }
        group->attached = false;
    }
}

int
ipoib_mcast_attach(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    int error;

    if (group->attached && group->attached_mlid == group->mlid) {
        return 0;
    }
    ipoib_mcast_detach(group);
    error = mcast->ops->attach(mcast->aux, &group->mgid, group->mlid);
    if (!error) {
        group->attached = true;
        group->attached_mlid = group->mlid;
    }
    return error;
}

/* Ends 'group', of which the SA knows nothing (any more). */
void
ipoib_mcast_group_remove(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;

    ipoib_mcast_cancel(group);
    ipoib_mcast_detach(group);
    mcast_dequeue(group);
    ipoib_mcast_drop_router(group);
    ipoib_mcast_drop_send(group);
    mcast->ops->removed(mcast->aux, group);
    ipoib_mcast_set_ah(group, NULL);
    mcast_unpublish(group);
    hmap_remove(&mcast->groups, &group->node);
    free(group);
}

/* RCU callback: readers are gone. */
static void
mcast_free(struct ipoib_mcast *mcast)
{
    struct mcast_free_slot *f;

    ipoib_pages_unmap(mcast->slots, MCAST_N_SLOTS * sizeof *mcast->slots);
    LIST_FOR_EACH_POP (f, node, &mcast->free_slots) {
        free(f);
    }
    ipoib_table_destroy(mcast->table);
    free(mcast);
}

void
ipoib_mcast_destroy(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    if (!mcast) {
        return;
    }
    HMAP_FOR_EACH_SAFE (group, node, &mcast->groups) {
        ipoib_mcast_group_remove(group);
    }
    hmap_destroy(&mcast->groups);
    hmap_destroy(&mcast->senders);
    ovsrcu_postpone(mcast_free, mcast);
}

/* What is to be done. */

static bool
mcast_needs_join(const struct ipoib_mcast_group *group)
{
    return (group->state != IPOIB_MCAST_JOINED || group->again
            || (group->want & IPOIB_MCAST_RECV
                && !(group->join_state & IB_JOIN_FULL))
            || (group->want & IPOIB_MCAST_ROUTER
                && !(group->join_state & (IB_JOIN_FULL | IB_JOIN_NON))));
}

/* Returns true if 'group' has a membership that it should not have any more,
 * and which only leaving it wholly takes away: one that keeps the group alive
 * where only a router listens, or a non-member's where nobody does. */
static bool
mcast_needs_less(const struct ipoib_mcast_group *group)
{
    uint8_t keeps = IB_JOIN_FULL | IB_JOIN_SEND_ONLY_FULL;

    return (group->state == IPOIB_MCAST_JOINED && group->mcast->policy.leave
            && ((group->want == IPOIB_MCAST_ROUTER
                 && group->join_state & keeps)
                || (group->want == IPOIB_MCAST_SEND
                    && group->join_state & IB_JOIN_NON
                    && !(group->join_state & keeps))));
}

/* Returns true if 'group' may be joined at this time.  If not, all groups are
 * put into the to-do list when that changes. */
static bool
mcast_may_join(const struct ipoib_mcast_group *group)
{
    const struct ipoib_mcast *mcast = group->mcast;
    const struct ipoib_mcast_group *b = mcast->broadcast;

    if (!b || !mcast->params.active) {
        return false;
    } else if (group == b) {
        return true;
    }
    return (b->state == IPOIB_MCAST_JOINED && !b->again && !b->request
            && (ipoib_mcast_receives(group)
                || group->join_state & IB_JOIN_FULL
                || ipoib_sa_is_settled(mcast->sa)));
}

/* Attaches to or detaches from 'group', which is joined, as wanted. */
static void
mcast_step_attach(struct ipoib_mcast_group *group, long long int now)
{
    if (!ipoib_mcast_receives(group)) {
        ipoib_mcast_detach(group);
    } else if (!group->attached) {
        if (now < group->next_try) {
            ipoib_mcast_schedule(group->mcast, group->next_try);
            return;
        }
        group->last_error = ipoib_mcast_attach(group);
        if (group->last_error) {
            static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

            VLOG_WARN_RL(&rl, "failed to attach to MLID 0x%04"PRIx16" (%s)",
                         group->mlid, ovs_strerror(group->last_error));
            group->backoff = (group->backoff ? MIN(group->backoff * 2,
                                                   MCAST_BACKOFF_MAX) : 1);
            group->next_try = now + group->backoff * 1000LL;
            ipoib_mcast_schedule(group->mcast, group->next_try);
        } else {
            group->backoff = 0;
            group->next_try = 0;
            ipoib_mcast_changed(group);
        }
    }
}

/* Does what 'group' needs now. */
static void
mcast_step(struct ipoib_mcast_group *group, long long int now)
{
    if (group->request) {
        /* One at a time: its answer comes back here. */
    } else if (!group->want || mcast_needs_less(group)) {
        ipoib_mcast_leave(group);
    } else if (!mcast_needs_join(group)) {
        mcast_step_attach(group, now);
    } else if (mcast_may_join(group)) {
        if (now >= group->next_try) {
            ipoib_mcast_send_join(group);
        } else {
            ipoib_mcast_schedule(group->mcast, group->next_try);
        }
    }
}

/* Looks at 'group' for what is due by time. */
static void
mcast_scan(struct ipoib_mcast_group *group, long long int now)
{
    struct ipoib_mcast *mcast = group->mcast;

    if (group->want & IPOIB_MCAST_SEND && !ipoib_mcast_is_broadcast(group)) {
        uint32_t used;
        long long int due;

        atomic_read_relaxed(&ipoib_mcast_fast(mcast, group->slot)->used,
                            &used);
        due = (used + (long long int) IPOIB_MCAST_IDLE_TIMEOUT) * 1000;
        if (now >= due) {
            ipoib_mcast_drop_send(group);
            ipoib_mcast_enqueue(group);
        } else {
            ipoib_mcast_schedule(mcast, due);
        }
    }
    if (group->state == IPOIB_MCAST_JOINED && !group->again) {
        group->again = now >= ipoib_mcast_refresh_due(group);
        if (group->again) {
            ipoib_mcast_enqueue(group);
        } else {
            ipoib_mcast_schedule(mcast, ipoib_mcast_refresh_due(group));
        }
    }
    if (group->next_try) {
        if (now >= group->next_try) {
            ipoib_mcast_enqueue(group);
        } else {
            ipoib_mcast_schedule(mcast, group->next_try);
        }
    }
}

void
ipoib_mcast_run(struct ipoib_mcast *mcast, long long int now)
{
    bool settled = ipoib_sa_is_settled(mcast->sa);

    mcast->now = now;
    if (settled != mcast->settled) {
        mcast->settled = settled;
        ipoib_mcast_enqueue_all(mcast);
    }
    if (now >= mcast->next_scan
        && now >= mcast->last_scan + MCAST_SCAN_PAUSE) {
        struct ipoib_mcast_group *group;

        mcast->next_scan = LLONG_MAX;
        mcast->last_scan = now;
        HMAP_FOR_EACH (group, node, &mcast->groups) {
            mcast_scan(group, now);
        }
    }
    while (mcast->n_requests < MCAST_WINDOW
           && !ovs_list_is_empty(&mcast->todo)) {
        struct ipoib_mcast_group *group
            = CONTAINER_OF(ovs_list_front(&mcast->todo),
                           struct ipoib_mcast_group, todo);

        mcast_dequeue(group);
        mcast_step(group, now);
    }
}

void
ipoib_mcast_wait(struct ipoib_mcast *mcast)
{
    if (mcast->n_requests < MCAST_WINDOW && !ovs_list_is_empty(&mcast->todo)) {
        poll_immediate_wake();
    }
    if (mcast->settled != ipoib_sa_is_settled(mcast->sa)) {
        poll_immediate_wake();
    }
    if (mcast->next_scan != LLONG_MAX) {
        poll_timer_wait_until(MAX(mcast->next_scan,
                                  mcast->last_scan + MCAST_SCAN_PAUSE));
    }
}

/* Wishes. */

struct ipoib_mcast_group *
ipoib_mcast_find(const struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH_WITH_HASH (group, node, hash_bytes(mgid, sizeof *mgid, 0),
                             &mcast->groups) {
        if (ib_gid_equals(&group->mgid, mgid)) {
            return group;
        }
    }
    return NULL;
}

struct ipoib_mcast_group *
ipoib_mcast_want(struct ipoib_mcast *mcast, const struct ib_gid *mgid,
                 unsigned int why)
{
    struct ipoib_mcast_group *group = ipoib_mcast_find(mcast, mgid);
    unsigned int old;

    if (why & IPOIB_MCAST_ROUTER
        && mcast->n_router >= mcast->limits.groups / 4
        && !(group && group->want & IPOIB_MCAST_ROUTER)) {
        mcast->n_router_refused++;
        return NULL;
    }
    if (!group) {
        group = (ib_gid_is_multicast(mgid)
                 ? mcast_group_create(mcast, mgid) : NULL);
        if (!group) {
            return NULL;
        }
    }
    old = group->want;
    if (why & ~old & IPOIB_MCAST_ROUTER) {
        mcast->n_router++;
    }
    group->want |= why;
    if (why & IPOIB_MCAST_RECV) {
        group->n_recv++;
    }
    if (why & IPOIB_MCAST_SEND) {
        struct ipoib_mcast_fast *fast = ipoib_mcast_fast(mcast, group->slot);
        uint32_t used = ipoib_mcast_now(mcast) / 1000;

        atomic_store_relaxed(&fast->used, used);
        ipoib_mcast_schedule(
            mcast, (used + 1LL + IPOIB_MCAST_IDLE_TIMEOUT) * 1000);
    }
    if (group->want != old) {
        ipoib_mcast_enqueue(group);
    }
    return group;
}

void
ipoib_mcast_unwant(struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group = ipoib_mcast_find(mcast, mgid);

    if (group && group->n_recv > ipoib_mcast_is_broadcast(group)
        && !--group->n_recv) {
        group->want &= ~IPOIB_MCAST_RECV;
        ipoib_mcast_enqueue(group);
    }
}

void
ipoib_mcast_unwant_router(struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group = ipoib_mcast_find(mcast, mgid);

    if (group && group->want & IPOIB_MCAST_ROUTER) {
        ipoib_mcast_drop_router(group);
        ipoib_mcast_enqueue(group);
    }
}

struct ipoib_mcast_group *
ipoib_mcast_broadcast(const struct ipoib_mcast *mcast)
{
    return (mcast->broadcast && mcast->broadcast->state == IPOIB_MCAST_JOINED
            ? mcast->broadcast : NULL);
}

/* Parameters and events. */

void
ipoib_mcast_set_policy(struct ipoib_mcast *mcast,
                       const struct ipoib_mcast_policy *policy)
{
    mcast->policy = *policy;
    ipoib_mcast_schedule(mcast, 0);
}

void
ipoib_mcast_rejoin_all(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        ipoib_mcast_mark_again(group);
    }
    if (mcast->broadcast) {
        mcast_dequeue(mcast->broadcast);
        ovs_list_push_front(&mcast->todo, &mcast->broadcast->todo);
    }
}

/* The port is not active any more: nobody answers, and the SA forgets us. */
static void
mcast_suspend(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        ipoib_mcast_cancel(group);
        if (group->state == IPOIB_MCAST_JOINING) {
            group->state = IPOIB_MCAST_IDLE;
        } else if (group->state == IPOIB_MCAST_LEAVING) {
            group->state = IPOIB_MCAST_IDLE;
            group->join_state = 0;
            ipoib_mcast_enqueue(group);
        }
    }
}

/* Moves 'group' to the partition of the new parameters.  The SA's membership
 * in the old group is left without a word more. */
static void
mcast_rekey(struct ipoib_mcast_group *group, uint16_t pkey)
{
    struct ipoib_mcast *mcast = group->mcast;

    if (group->join_state && mcast->params.active && mcast->policy.leave
        && !ipoib_mcast_is_broadcast(group)) {
        struct ib_mcmember_record rec;

        ipoib_mcast_leave_record(group, &rec);
        ipoib_sa_send_once(mcast->sa, IB_METHOD_DELETE,
                           IB_ATTR_MCMEMBER_RECORD, IB_MCM_MASK_LEAVE, &rec,
                           sizeof rec);
    }
    ipoib_mcast_cancel(group);
    ipoib_mcast_detach(group);
    ipoib_mcast_set_ah(group, NULL);
    mcast_unpublish(group);
    hmap_remove(&mcast->groups, &group->node);

    group->mgid.raw[4] = (pkey | IB_PKEY_FULL) >> 8;
    group->mgid.raw[5] = pkey & 0xff;
    group->state = IPOIB_MCAST_IDLE;
    group->join_state = 0;
    group->known = false;
    ipoib_mcast_enqueue(group);
}

static void
mcast_set_pkey(struct ipoib_mcast *mcast, uint16_t pkey)
{
    size_t n = hmap_count(&mcast->groups);
    struct ipoib_mcast_group **groups = xmalloc((n + 1) * sizeof *groups);
    struct ipoib_mcast_group *group;

    n = 0;
    HMAP_FOR_EACH_SAFE (group, node, &mcast->groups) {
        mcast_rekey(group, pkey);
        groups[n++] = group;
    }
    /* All are out before the first is in again: MGIDs cannot clash. */
    for (size_t i = 0; i < n; i++) {
        hmap_insert(&mcast->groups, &groups[i]->node,
                    hash_bytes(&groups[i]->mgid, sizeof groups[i]->mgid, 0));
        mcast_publish(groups[i]);
    }
    for (size_t i = 0; i < n; i++) {
        ipoib_mcast_changed(groups[i]);
    }
    free(groups);
}

void
ipoib_mcast_set_params(struct ipoib_mcast *mcast,
                       const struct ipoib_mcast_params *params)
{
    struct ipoib_mcast_params old = mcast->params;
    bool first = !mcast->have_params;

    if (!first && (old.pkey ^ params->pkey) & IB_PKEY_MASK) {
        mcast_set_pkey(mcast, params->pkey);
    }
    mcast->params = *params;
    mcast->have_params = true;
    if (first) {
        struct ib_gid mgid = ipoib_mgid_broadcast(params->pkey, MCAST_SCOPE);

        mcast->broadcast = ipoib_mcast_want(mcast, &mgid, IPOIB_MCAST_RECV);
    }

    if (!params->active) {
        if (!first && old.active) {
            mcast_suspend(mcast);
        }
    } else if (first || !old.active
               || !ib_gid_equals(&old.port_gid, &params->port_gid)
               || old.port != params->port || old.pkey != params->pkey
               || old.lid != params->lid
               || old.port_mtu != params->port_mtu) {
        ipoib_mcast_rejoin_all(mcast);
    }
}

void
ipoib_mcast_leave_all(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;
    bool send = mcast->params.active && mcast->policy.leave;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        if (group->request && group->state != IPOIB_MCAST_LEAVING) {
            /* A join that is under way may have been done. */
            group->join_state |= ipoib_mcast_join_state(group);
        }
        ipoib_mcast_cancel(group);
        ipoib_mcast_detach(group);
        ipoib_mcast_set_ah(group, NULL);
    }
    mcast->params.active = false;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        if (send && group->join_state
            && (!ipoib_mcast_is_broadcast(group)
                || mcast->policy.leave_broadcast)) {
            struct ib_mcmember_record rec;

            ipoib_mcast_leave_record(group, &rec);
            send = !ipoib_sa_send_once(mcast->sa, IB_METHOD_DELETE,
                                       IB_ATTR_MCMEMBER_RECORD,
                                       IB_MCM_MASK_LEAVE, &rec, sizeof rec);
        }
        group->state = IPOIB_MCAST_IDLE;
        group->join_state = 0;
    }
}

void
ipoib_mcast_detach_all(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        if (group->attached) {
            ipoib_mcast_detach(group);
            ipoib_mcast_enqueue(group);
        }
    }
}

void
ipoib_mcast_for_each(const struct ipoib_mcast *mcast,
                     void (*cb)(const struct ipoib_mcast_group *, void *aux),
                     void *aux)
{
    const struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        cb(group, aux);
    }
}
