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
#include "ipoib-mcast.h"

#include <errno.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "ipoib-packet.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "random.h"
#include "timeval.h"

VLOG_DEFINE_THIS_MODULE(ipoib_mcast);

COVERAGE_DEFINE(ipoib_mcast_join);
COVERAGE_DEFINE(ipoib_mcast_leave);
COVERAGE_DEFINE(ipoib_mcast_refused);
COVERAGE_DEFINE(ipoib_mcast_bad_record);
COVERAGE_DEFINE(ipoib_mcast_too_many);

#define MCAST_WINDOW 32         /* Requests under way, at most. */
#define MCAST_BACKOFF_MAX 16    /* Seconds, after 1, 2, 4 and 8. */
#define MCAST_SCAN_PAUSE 100    /* Between walks over all groups, ms. */
#define MCAST_SCOPE 2           /* Of the broadcast group: link-local. */

/* What readers see of groups lies in chunks, which stay where they are. */
#define MCAST_CHUNK_BITS 6
#define MCAST_CHUNK (1u << MCAST_CHUNK_BITS)
#define MCAST_N_CHUNKS 512
#define MCAST_N_SLOTS (MCAST_CHUNK * MCAST_N_CHUNKS)
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
    bool settled;               /* The SA's capabilities are known. */
    long long int now;          /* Of the last run. */
    long long int next_scan;
    long long int last_scan;

    /* For readers. */
    struct ipoib_table *table;
    uint32_t basis;
    ATOMIC(struct ipoib_mcast_fast *) chunks[MCAST_N_CHUNKS];
    uint32_t n_slots;           /* Ever used. */
    struct ovs_list free_slots; /* Oldest first. */
};

static ipoib_sa_cb mcast_join_answer;
static ipoib_sa_cb mcast_leave_answer;

static long long int
mcast_now(const struct ipoib_mcast *mcast)
{
    return MAX(mcast->now, time_msec());
}

/* Has ipoib_mcast_run() look at all groups at 'when'. */
static void
mcast_schedule(struct ipoib_mcast *mcast, long long int when)
{
    mcast->next_scan = MIN(mcast->next_scan, when);
}

static void
mcast_enqueue(struct ipoib_mcast_group *group)
{
    if (ovs_list_is_empty(&group->todo)) {
        ovs_list_push_back(&group->mcast->todo, &group->todo);
    }
}

static void
mcast_enqueue_all(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        mcast_enqueue(group);
    }
}

static void
mcast_dequeue(struct ipoib_mcast_group *group)
{
    ovs_list_remove(&group->todo);
    ovs_list_init(&group->todo);
}

static bool
mcast_is_broadcast(const struct ipoib_mcast_group *group)
{
    return group == group->mcast->broadcast;
}

static void
mcast_changed(struct ipoib_mcast_group *group)
{
    group->mcast->ops->changed(group->mcast->aux, group);
}

static const char *
mcast_format(const struct ipoib_mcast_group *group, struct ds *ds)
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
ipoib_mcast_fast(const struct ipoib_mcast *mcast_, uint32_t slot)
{
    struct ipoib_mcast *mcast = CONST_CAST(struct ipoib_mcast *, mcast_);
    struct ipoib_mcast_fast *chunk;

    atomic_read_explicit(&mcast->chunks[slot >> MCAST_CHUNK_BITS], &chunk,
                         memory_order_acquire);
    return &chunk[slot & (MCAST_CHUNK - 1)];
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

        if (mcast_now(mcast) >= f->freed + MCAST_SLOT_REST
            || mcast->n_slots >= MCAST_N_SLOTS) {
            uint32_t slot = f->slot;

            ovs_list_remove(&f->node);
            free(f);
            return slot;
        }
    }
    ovs_assert(mcast->n_slots < MCAST_N_SLOTS);
    if (!(mcast->n_slots & (MCAST_CHUNK - 1))) {
        struct ipoib_mcast_fast *chunk
            = xzalloc_cacheline(MCAST_CHUNK * sizeof *chunk);

        atomic_store_explicit(
            &mcast->chunks[mcast->n_slots >> MCAST_CHUNK_BITS], chunk,
            memory_order_release);
    }
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
    f->freed = mcast_now(mcast);
    ovs_list_push_back(&mcast->free_slots, &f->node);
    group->slot = IPOIB_SLOT_NONE;
}

/* Makes 'ah' the AH of 'group', also for readers, and retires the one before,
 * if it is another one. */
static void
mcast_set_ah(struct ipoib_mcast_group *group, struct ibv_ah *ah)
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
    ovs_list_init(&mcast->todo);
    ovs_list_init(&mcast->free_slots);
    mcast->next_scan = LLONG_MAX;
    mcast->policy.leave = true;
    mcast->table = ipoib_table_create(64);
    mcast->basis = random_uint32();
    for (size_t i = 0; i < MCAST_N_CHUNKS; i++) {
        atomic_init(&mcast->chunks[i], NULL);
    }
    return mcast;
}

/* A new group, which nobody wants yet.  NULL if there are too many. */
static struct ipoib_mcast_group *
mcast_group_create(struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group;

    if (hmap_count(&mcast->groups) >= IPOIB_MCAST_MAX) {
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

static void
mcast_cancel(struct ipoib_mcast_group *group)
{
    if (group->request) {
        ipoib_sa_cancel(group->mcast->sa, group->request);
        group->request = NULL;
        group->mcast->n_requests--;
    }
}

static void
mcast_detach(struct ipoib_mcast_group *group)
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

static int
mcast_attach(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    int error;

    if (group->attached && group->attached_mlid == group->mlid) {
        return 0;
    }
    mcast_detach(group);
    error = mcast->ops->attach(mcast->aux, &group->mgid, group->mlid);
    if (!error) {
        group->attached = true;
        group->attached_mlid = group->mlid;
    }
    return error;
}

/* Ends 'group', of which the SA knows nothing (any more). */
static void
mcast_group_remove(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;

    mcast_cancel(group);
    mcast_detach(group);
    mcast_dequeue(group);
    mcast->ops->removed(mcast->aux, group);
    mcast_set_ah(group, NULL);
    mcast_unpublish(group);
    hmap_remove(&mcast->groups, &group->node);
    free(group);
}

/* RCU callback: readers are gone. */
static void
mcast_free(struct ipoib_mcast *mcast)
{
    struct mcast_free_slot *f;

    for (size_t i = 0; i < MCAST_N_CHUNKS; i++) {
        struct ipoib_mcast_fast *chunk;

        atomic_read_relaxed(&mcast->chunks[i], &chunk);
        free_cacheline(chunk);
    }
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
        mcast_group_remove(group);
    }
    hmap_destroy(&mcast->groups);
    ovsrcu_postpone(mcast_free, mcast);
}

/* Requests to the SA. */

/* The JoinState to ask for.  A member in full (also one that was a sender
 * first) stays one: to be both, and to leave one of both, leaks the group's
 * MLID in OpenSM. */
static uint8_t
mcast_join_state(const struct ipoib_mcast_group *group)
{
    if (group->want & IPOIB_MCAST_RECV || group->join_state & IB_JOIN_FULL) {
        return IB_JOIN_FULL;
    }
    return (ipoib_sa_send_only_full_member(group->mcast->sa)
            ? IB_JOIN_SEND_ONLY_FULL : IB_JOIN_FULL);
}

static void
mcast_send_join(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    const struct ipoib_mcast_group *b = mcast->broadcast;
    uint32_t mask = IB_MCM_MASK_JOIN_BROADCAST;
    struct ib_mcmember_record rec;

    memset(&rec, 0, sizeof rec);
    rec.mgid = group->mgid;
    rec.port_gid = mcast->params.port_gid;
    rec.pkey = htons(mcast->params.pkey | IB_PKEY_FULL);
    rec.scope_join = mcast_join_state(group);
    if (group != b || group->create) {
        mask = IB_MCM_MASK_CREATE;
        rec.qkey = htonl(b->qkey);
        rec.mtu = IB_SELECTOR_EXACTLY << 6 | b->mtu;
        rec.rate = IB_SELECTOR_EXACTLY << 6 | b->rate;
        rec.tclass = b->tclass;
        rec.sl_flow_hop = htonl((uint32_t) b->sl << 28 | b->flow_label << 8
                                | b->hop_limit);
    }
    if (group->state == IPOIB_MCAST_IDLE) {
        group->state = IPOIB_MCAST_JOINING;
    }
    group->request = ipoib_sa_send(mcast->sa, IB_METHOD_SET,
                                   IB_ATTR_MCMEMBER_RECORD, mask, &rec,
                                   sizeof rec, mcast_join_answer, group);
    mcast->n_requests++;
    COVERAGE_INC(ipoib_mcast_join);
}

static void
mcast_leave_record(const struct ipoib_mcast_group *group,
                   struct ib_mcmember_record *rec)
{
    memset(rec, 0, sizeof *rec);
    rec->mgid = group->mgid;
    rec->port_gid = group->mcast->params.port_gid;
    rec->scope_join = group->join_state;
}

/* Leaves 'group', with all that the SA has of it in one request. */
static void
mcast_leave(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    struct ib_mcmember_record rec;

    mcast_detach(group);
    mcast_set_ah(group, NULL);
    if (!group->join_state || !mcast->params.active
        || !mcast->policy.leave) {
        /* The SA forgets the members of a port that is down by itself. */
        mcast_group_remove(group);
        return;
    }

    group->state = IPOIB_MCAST_LEAVING;
    mcast_leave_record(group, &rec);
    group->request = ipoib_sa_send(mcast->sa, IB_METHOD_DELETE,
                                   IB_ATTR_MCMEMBER_RECORD, IB_MCM_MASK_LEAVE,
                                   &rec, sizeof rec, mcast_leave_answer,
                                   group);
    mcast->n_requests++;
    COVERAGE_INC(ipoib_mcast_leave);
    mcast_changed(group);
}

/* Answers. */

static void
mcast_leave_answer(void *group_, int error, uint16_t status,
                   const struct ib_sa_mad *mad OVS_UNUSED)
{
    struct ipoib_mcast_group *group = group_;

    /* A refusal says that we are no member: an earlier try, whose answer was
     * lost, or a restarted SM saw to that.  After a timeout, too, nothing more
     * can be done. */
    group->request = NULL;
    group->mcast->n_requests--;
    group->last_error = error;
    group->last_status = 0;
    group->join_state = 0;
    group->state = IPOIB_MCAST_IDLE;
    group->again = false;
    if (status) {
        VLOG_DBG("leave: %s", ib_sa_status_to_string(status));
    }
    mcast_enqueue(group);
}

static void
mcast_log_failure(const struct ipoib_mcast_group *group)
{
    struct ds ds = DS_EMPTY_INITIALIZER;
    const char *reason = ipoib_mcast_failure(group);

    if (mcast_is_broadcast(group) && group->backoff >= 4) {
        /* Not the first time, so that it is no SM that just starts. */
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "cannot join broadcast group %s: %s",
                     mcast_format(group, &ds), reason);
    } else {
        VLOG_DBG("failed to join group %s: %s", mcast_format(group, &ds),
                 reason);
    }
    ds_destroy(&ds);
}

/* The last try to join 'group' failed, for the reason in it.  What was joined
 * before goes on to be used. */
static void
mcast_join_failed(struct ipoib_mcast_group *group)
{
    COVERAGE_INC(ipoib_mcast_refused);
    if (mcast_is_broadcast(group) && group->known && !group->create
        && group->last_status == IB_SA_INSUFFICIENT_COMPS) {
        /* The group went with the SM that was restarted: make it as it was. */
        group->create = true;
        mcast_enqueue(group);
        return;
    }

    group->create = false;
    group->backoff = (group->backoff
                      ? MIN(group->backoff * 2, MCAST_BACKOFF_MAX) : 1);
    group->next_try = mcast_now(group->mcast) + group->backoff * 1000LL;
    mcast_log_failure(group);
    if (group->state == IPOIB_MCAST_JOINING) {
        group->state = IPOIB_MCAST_IDLE;
    }
    mcast_enqueue(group);
    mcast_changed(group);
}

/* Returns 0 if 'rec', the answer to the join of 'group', can be used, or else
 * a positive errno value. */
static int
mcast_check_record(const struct ipoib_mcast_group *group,
                   const struct ib_mcmember_record *rec)
{
    const struct ipoib_mcast_group *b = group->mcast->broadcast;
    uint16_t mlid = ntohs(rec->mlid);
    uint8_t mtu = rec->mtu & 0x3f;

    if (!ib_gid_equals(&rec->mgid, &group->mgid) || mlid < IB_LID_MULTICAST
        || mlid == IB_LID_PERMISSIVE || !ib_mtu_bytes(mtu)) {
        return EPROTO;
    }
    if (mtu > group->mcast->params.port_mtu) {
        return EMSGSIZE;        /* Packets that the port cannot receive. */
    }
    if (group != b && ntohl(rec->qkey) != b->qkey) {
        return EBADR;           /* The QP has the broadcast group's. */
    }
    return 0;
}

/* Copies 'rec' into 'group'.  Returns true if something that other groups are
 * joined with changed. */
static bool
mcast_copy_record(struct ipoib_mcast_group *group,
                  const struct ib_mcmember_record *rec)
{
    uint32_t sl_flow_hop = ntohl(rec->sl_flow_hop);
    uint32_t flow_label = sl_flow_hop >> 8 & 0xfffff;
    uint32_t qkey = ntohl(rec->qkey);
    uint8_t mtu = rec->mtu & 0x3f;
    uint8_t rate = rec->rate & 0x3f;
    uint8_t sl = sl_flow_hop >> 28;
    uint8_t hop_limit = sl_flow_hop & 0xff;
    bool changed;

    changed = (qkey != group->qkey || mtu != group->mtu || rate != group->rate
               || sl != group->sl || rec->tclass != group->tclass
               || hop_limit != group->hop_limit
               || flow_label != group->flow_label);
    group->mlid = ntohs(rec->mlid);
    group->mtu = mtu;
    group->rate = rate;
    group->sl = sl;
    group->tclass = rec->tclass;
    group->hop_limit = hop_limit;
    group->flow_label = flow_label;
    group->qkey = qkey;
    return changed;
}

/* Makes the AH of 'group' be what the group says; an AH that is right already
 * stays. */
static int
mcast_update_ah(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    struct ibv_ah_attr attr, copy;
    struct ibv_ah *ah;

    memset(&attr, 0, sizeof attr);
    attr.dlid = group->mlid;
    attr.sl = group->sl;
    attr.static_rate = group->rate;
    attr.port_num = mcast->params.port;
    attr.is_global = 1;
    memcpy(attr.grh.dgid.raw, group->mgid.raw, IB_GID_LEN);
    attr.grh.flow_label = group->flow_label;
    attr.grh.hop_limit = group->hop_limit;
    attr.grh.traffic_class = group->tclass;
    if (group->ah && !memcmp(&attr, &group->attr, sizeof attr)) {
        return 0;
    }

    copy = attr;
    ah = mcast->verbs->create_ah(mcast->pd, &copy);
    if (!ah) {
        return errno ? errno : EIO;
    }
    group->attr = attr;
    mcast_set_ah(group, ah);
    return 0;
}

static void
mcast_log_join(const struct ipoib_mcast_group *group)
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    VLOG(mcast_is_broadcast(group) ? VLL_INFO : VLL_DBG,
         "joined group %s: MLID 0x%04"PRIx16", MTU %d, rate %"PRIu8", "
         "SL %"PRIu8", Q_Key 0x%08"PRIx32", join state 0x%"PRIx8,
         mcast_format(group, &ds), group->mlid, ib_mtu_bytes(group->mtu),
         group->rate, group->sl, group->qkey, group->join_state);
    ds_destroy(&ds);
}

/* Has 'group' joined again, from the start. */
static void
mcast_mark_again(struct ipoib_mcast_group *group)
{
    if (group->state != IPOIB_MCAST_LEAVING) {
        /* A join under way asks for what is out of date, or was answered by
         * an SA that is gone since. */
        mcast_cancel(group);
        if (group->state == IPOIB_MCAST_JOINING) {
            group->state = IPOIB_MCAST_IDLE;
        }
        group->again = group->state == IPOIB_MCAST_JOINED;
        group->backoff = 0;
        group->next_try = 0;
        group->create = false;
    }
    mcast_enqueue(group);
}

/* When 'group', which is joined, is to be joined again in case that somebody
 * else has left it.  Each has a time of its own, so that they don't all come
 * at once. */
static long long int
mcast_refresh_due(const struct ipoib_mcast_group *group)
{
    return (group->mcast->policy.refresh
            ? group->joined + IPOIB_MCAST_REFRESH
              - group->node.hash % (IPOIB_MCAST_REFRESH / 4)
            : LLONG_MAX);
}

/* 'group' was joined, and 'rec' is what the SA has of it. */
static void
mcast_joined(struct ipoib_mcast_group *group,
             const struct ib_mcmember_record *rec)
{
    struct ipoib_mcast *mcast = group->mcast;
    bool first = group->state != IPOIB_MCAST_JOINED;
    bool new_params = mcast_copy_record(group, rec);

    group->known = true;
    group->create = false;
    group->last_error = mcast_update_ah(group);
    if (group->last_error) {
        mcast_join_failed(group);
        return;
    }
    group->state = IPOIB_MCAST_JOINED;
    group->joined = mcast_now(mcast);
    group->again = false;
    group->backoff = 0;
    group->next_try = 0;
    if (first || !mcast_is_broadcast(group) || new_params) {
        mcast_log_join(group);
    }

    mcast_schedule(mcast, mcast_refresh_due(group));
    mcast_enqueue(group);
    if (mcast_is_broadcast(group)) {
        /* The others wait for this, and are like it. */
        if (new_params) {
            struct ipoib_mcast_group *other;

            HMAP_FOR_EACH (other, node, &mcast->groups) {
                if (other != group) {
                    mcast_mark_again(other);
                }
            }
        }
        mcast_enqueue_all(mcast);
    }
    if (group->want & IPOIB_MCAST_RECV) {
        group->last_error = mcast_attach(group);
    }
    mcast_changed(group);
}

static void
mcast_join_answer(void *group_, int error, uint16_t status,
                  const struct ib_sa_mad *mad)
{
    struct ipoib_mcast_group *group = group_;

    group->request = NULL;
    group->mcast->n_requests--;
    group->last_error = error;
    group->last_status = status;
    if (!error && !status) {
        const struct ib_mcmember_record *rec
            = ALIGNED_CAST(const struct ib_mcmember_record *, mad->data);
        uint8_t join_state = rec->scope_join & 0xf;

        /* Whatever comes of it, this is to be left in the end. */
        group->join_state = join_state ? join_state : mcast_join_state(group);
        group->last_error = mcast_check_record(group, rec);
        if (!group->last_error) {
            mcast_joined(group, rec);
            return;
        }
        COVERAGE_INC(ipoib_mcast_bad_record);
    }
    mcast_join_failed(group);
}

/* What is to be done. */

static bool
mcast_needs_join(const struct ipoib_mcast_group *group)
{
    return (group->state != IPOIB_MCAST_JOINED || group->again
            || (group->want & IPOIB_MCAST_RECV
                && !(group->join_state & IB_JOIN_FULL)));
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
            && (group->want & IPOIB_MCAST_RECV
                || group->join_state & IB_JOIN_FULL
                || ipoib_sa_is_settled(mcast->sa)));
}

/* Attaches to or detaches from 'group', which is joined, as wanted. */
static void
mcast_step_attach(struct ipoib_mcast_group *group, long long int now)
{
    if (!(group->want & IPOIB_MCAST_RECV)) {
        mcast_detach(group);
    } else if (!group->attached) {
        if (now < group->next_try) {
            mcast_schedule(group->mcast, group->next_try);
            return;
        }
        group->last_error = mcast_attach(group);
        if (group->last_error) {
            static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

            VLOG_WARN_RL(&rl, "failed to attach to MLID 0x%04"PRIx16" (%s)",
                         group->mlid, ovs_strerror(group->last_error));
            group->backoff = (group->backoff ? MIN(group->backoff * 2,
                                                   MCAST_BACKOFF_MAX) : 1);
            group->next_try = now + group->backoff * 1000LL;
            mcast_schedule(group->mcast, group->next_try);
        } else {
            group->backoff = 0;
            group->next_try = 0;
            mcast_changed(group);
        }
    }
}

/* Does what 'group' needs now. */
static void
mcast_step(struct ipoib_mcast_group *group, long long int now)
{
    if (group->request) {
        /* One at a time: its answer comes back here. */
    } else if (!group->want) {
        mcast_leave(group);
    } else if (!mcast_needs_join(group)) {
        mcast_step_attach(group, now);
    } else if (mcast_may_join(group)) {
        if (now >= group->next_try) {
            mcast_send_join(group);
        } else {
            mcast_schedule(group->mcast, group->next_try);
        }
    }
}

/* Looks at 'group' for what is due by time. */
static void
mcast_scan(struct ipoib_mcast_group *group, long long int now)
{
    struct ipoib_mcast *mcast = group->mcast;

    if (group->want & IPOIB_MCAST_SEND && !mcast_is_broadcast(group)) {
        uint32_t used;
        long long int due;

        atomic_read_relaxed(&ipoib_mcast_fast(mcast, group->slot)->used,
                            &used);
        due = (used + (long long int) IPOIB_MCAST_IDLE_TIMEOUT) * 1000;
        if (now >= due) {
            group->want &= ~IPOIB_MCAST_SEND;
            mcast_enqueue(group);
        } else {
            mcast_schedule(mcast, due);
        }
    }
    if (group->state == IPOIB_MCAST_JOINED && !group->again) {
        group->again = now >= mcast_refresh_due(group);
        if (group->again) {
            mcast_enqueue(group);
        } else {
            mcast_schedule(mcast, mcast_refresh_due(group));
        }
    }
    if (group->next_try) {
        if (now >= group->next_try) {
            mcast_enqueue(group);
        } else {
            mcast_schedule(mcast, group->next_try);
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
        mcast_enqueue_all(mcast);
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

    if (!group) {
        group = (ib_gid_is_multicast(mgid)
                 ? mcast_group_create(mcast, mgid) : NULL);
        if (!group) {
            return NULL;
        }
    }
    old = group->want;
    group->want |= why;
    if (why & IPOIB_MCAST_RECV) {
        group->n_recv++;
    }
    if (why & IPOIB_MCAST_SEND) {
        struct ipoib_mcast_fast *fast = ipoib_mcast_fast(mcast, group->slot);
        uint32_t used = mcast_now(mcast) / 1000;

        atomic_store_relaxed(&fast->used, used);
        mcast_schedule(mcast, (used + 1LL + IPOIB_MCAST_IDLE_TIMEOUT) * 1000);
    }
    if (group->want != old) {
        mcast_enqueue(group);
    }
    return group;
}

void
ipoib_mcast_unwant(struct ipoib_mcast *mcast, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group = ipoib_mcast_find(mcast, mgid);

    if (group && group->n_recv > mcast_is_broadcast(group)
        && !--group->n_recv) {
        group->want &= ~IPOIB_MCAST_RECV;
        mcast_enqueue(group);
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
    mcast_schedule(mcast, 0);
}

void
ipoib_mcast_rejoin_all(struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_group *group;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        mcast_mark_again(group);
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
        mcast_cancel(group);
        if (group->state == IPOIB_MCAST_JOINING) {
            group->state = IPOIB_MCAST_IDLE;
        } else if (group->state == IPOIB_MCAST_LEAVING) {
            group->state = IPOIB_MCAST_IDLE;
            group->join_state = 0;
            mcast_enqueue(group);
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
        && !mcast_is_broadcast(group)) {
        struct ib_mcmember_record rec;

        mcast_leave_record(group, &rec);
        ipoib_sa_send_once(mcast->sa, IB_METHOD_DELETE,
                           IB_ATTR_MCMEMBER_RECORD, IB_MCM_MASK_LEAVE, &rec,
                           sizeof rec);
    }
    mcast_cancel(group);
    mcast_detach(group);
    mcast_set_ah(group, NULL);
    mcast_unpublish(group);
    hmap_remove(&mcast->groups, &group->node);

    group->mgid.raw[4] = (pkey | IB_PKEY_FULL) >> 8;
    group->mgid.raw[5] = pkey & 0xff;
    group->state = IPOIB_MCAST_IDLE;
    group->join_state = 0;
    group->known = false;
    mcast_enqueue(group);
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
        mcast_changed(groups[i]);
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
            group->join_state |= mcast_join_state(group);
        }
        mcast_cancel(group);
        mcast_detach(group);
        mcast_set_ah(group, NULL);
    }
    mcast->params.active = false;

    HMAP_FOR_EACH (group, node, &mcast->groups) {
        if (send && group->join_state
            && (!mcast_is_broadcast(group)
                || mcast->policy.leave_broadcast)) {
            struct ib_mcmember_record rec;

            mcast_leave_record(group, &rec);
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
            mcast_detach(group);
            mcast_enqueue(group);
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
