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
#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"

VLOG_DEFINE_THIS_MODULE(ipoib_mcast_join);

COVERAGE_DEFINE(ipoib_mcast_join);
COVERAGE_DEFINE(ipoib_mcast_leave);
COVERAGE_DEFINE(ipoib_mcast_refused);
COVERAGE_DEFINE(ipoib_mcast_bad_record);

static ipoib_sa_cb mcast_join_answer;
static ipoib_sa_cb mcast_leave_answer;

/* Requests to the SA. */

/* The JoinState to ask for.  A member in full (also one that was a sender
 * first) stays one: to be both, and to leave one of both, leaks the group's
 * MLID in OpenSM.  A non-member, for a multicast router on the other side,
 * receives and may send, but does not keep the group alive (RFC 4391, 11). */
uint8_t
ipoib_mcast_join_state(const struct ipoib_mcast_group *group)
{
    if (group->want & IPOIB_MCAST_RECV || group->join_state & IB_JOIN_FULL) {
        return IB_JOIN_FULL;
    } else if (group->want & IPOIB_MCAST_ROUTER) {
        return IB_JOIN_NON;
    }
    return (ipoib_sa_send_only_full_member(group->mcast->sa)
            ? IB_JOIN_SEND_ONLY_FULL : IB_JOIN_FULL);
}

void
ipoib_mcast_send_join(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    const struct ipoib_mcast_group *b = mcast->broadcast;
    uint32_t mask = IB_MCM_MASK_JOIN_BROADCAST;
    struct ib_mcmember_record rec;

    memset(&rec, 0, sizeof rec);
    rec.mgid = group->mgid;
    rec.port_gid = mcast->params.port_gid;
    rec.pkey = htons(mcast->params.pkey | IB_PKEY_FULL);
    rec.scope_join = ipoib_mcast_join_state(group);
    if (rec.scope_join == IB_JOIN_NON) {
        /* As the group is: this creates none. */
    } else if (group != b || group->create) {
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

void
ipoib_mcast_leave_record(const struct ipoib_mcast_group *group,
                         struct ib_mcmember_record *rec)
{
    memset(rec, 0, sizeof *rec);
    rec->mgid = group->mgid;
    rec->port_gid = group->mcast->params.port_gid;
    rec->scope_join = group->join_state;
}

/* Leaves 'group', with all that the SA has of it in one request. */
void
ipoib_mcast_leave(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast *mcast = group->mcast;
    struct ib_mcmember_record rec;

    ipoib_mcast_detach(group);
    ipoib_mcast_set_ah(group, NULL);
    if (!group->join_state || !mcast->params.active
        || !mcast->policy.leave) {
        /* The SA forgets the members of a port that is down by itself. */
        ipoib_mcast_group_remove(group);
        return;
    }

    group->state = IPOIB_MCAST_LEAVING;
    ipoib_mcast_leave_record(group, &rec);
    group->request = ipoib_sa_send(mcast->sa, IB_METHOD_DELETE,
                                   IB_ATTR_MCMEMBER_RECORD, IB_MCM_MASK_LEAVE,
                                   &rec, sizeof rec, mcast_leave_answer,
                                   group);
    mcast->n_requests++;
    COVERAGE_INC(ipoib_mcast_leave);
    ipoib_mcast_changed(group);
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
    ipoib_mcast_enqueue(group);
}

static void
mcast_log_failure(const struct ipoib_mcast_group *group)
{
    struct ds ds = DS_EMPTY_INITIALIZER;
    const char *reason = ipoib_mcast_failure(group);

    if (ipoib_mcast_is_broadcast(group) && group->backoff >= 4) {
        /* Not the first time, so that it is no SM that just starts. */
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "cannot join broadcast group %s: %s",
                     ipoib_mcast_format(group, &ds), reason);
    } else {
        VLOG_DBG("failed to join group %s: %s", ipoib_mcast_format(group, &ds),
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
    if (group->last_status == IB_SA_NO_RESOURCES) {
        ipoib_mcast_release_idle(group->mcast);
    }
    if (ipoib_mcast_is_broadcast(group) && group->known && !group->create
        && group->last_status == IB_SA_INSUFFICIENT_COMPS) {
        /* The group went with the SM that was restarted: make it as it was. */
        group->create = true;
        ipoib_mcast_enqueue(group);
        return;
    }

    group->create = false;
    if (group->want & IPOIB_MCAST_ROUTER && group->last_status
        && !(group->want & IPOIB_MCAST_RECV)) {
        /* It is gone, and was wanted because it was there. */
        ipoib_mcast_drop_router(group);
        if (group->state == IPOIB_MCAST_JOINING) {
            group->state = IPOIB_MCAST_IDLE;
        }
        ipoib_mcast_enqueue(group);
        return;
    }
    group->backoff = (group->backoff
                      ? MIN(group->backoff * 2, MCAST_BACKOFF_MAX) : 1);
    group->next_try = ipoib_mcast_now(group->mcast) + group->backoff * 1000LL;
    mcast_log_failure(group);
    if (group->state == IPOIB_MCAST_JOINING) {
        group->state = IPOIB_MCAST_IDLE;
    }
    ipoib_mcast_enqueue(group);
    ipoib_mcast_changed(group);
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
    ipoib_mcast_set_ah(group, ah);
    return 0;
}

static void
mcast_log_join(const struct ipoib_mcast_group *group)
{
    struct ds ds = DS_EMPTY_INITIALIZER;

    VLOG(ipoib_mcast_is_broadcast(group) ? VLL_INFO : VLL_DBG,
         "joined group %s: MLID 0x%04"PRIx16", MTU %d, rate %"PRIu8", "
         "SL %"PRIu8", Q_Key 0x%08"PRIx32", join state 0x%"PRIx8,
         ipoib_mcast_format(group, &ds), group->mlid, ib_mtu_bytes(group->mtu),
         group->rate, group->sl, group->qkey, group->join_state);
    ds_destroy(&ds);
}

/* Has 'group' joined again, from the start. */
void
ipoib_mcast_mark_again(struct ipoib_mcast_group *group)
{
    if (group->state != IPOIB_MCAST_LEAVING) {
        /* A join under way asks for what is out of date, or was answered by
         * an SA that is gone since. */
        ipoib_mcast_cancel(group);
        if (group->state == IPOIB_MCAST_JOINING) {
            group->state = IPOIB_MCAST_IDLE;
        }
        group->again = group->state == IPOIB_MCAST_JOINED;
        group->backoff = 0;
        group->next_try = 0;
        group->create = false;
    }
    ipoib_mcast_enqueue(group);
}

/* When 'group', which is joined, is to be joined again in case that somebody
 * else has left it.  Each has a time of its own, so that they don't all come
 * at once. */
long long int
ipoib_mcast_refresh_due(const struct ipoib_mcast_group *group)
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
    group->joined = ipoib_mcast_now(mcast);
    group->again = false;
    group->backoff = 0;
    group->next_try = 0;
    if (first || !ipoib_mcast_is_broadcast(group) || new_params) {
        mcast_log_join(group);
    }

    ipoib_mcast_schedule(mcast, ipoib_mcast_refresh_due(group));
    ipoib_mcast_enqueue(group);
    if (ipoib_mcast_is_broadcast(group)) {
        /* The others wait for this, and are like it. */
        if (new_params) {
            struct ipoib_mcast_group *other;

            HMAP_FOR_EACH (other, node, &mcast->groups) {
                if (other != group) {
                    ipoib_mcast_mark_again(other);
                }
            }
        }
        ipoib_mcast_enqueue_all(mcast);
    }
    if (ipoib_mcast_receives(group)) {
        group->last_error = ipoib_mcast_attach(group);
    }
    ipoib_mcast_changed(group);
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
        group->join_state = (join_state ? join_state
                             : ipoib_mcast_join_state(group));
        group->last_error = mcast_check_record(group, rec);
        if (!group->last_error) {
            mcast_joined(group, rec);
            return;
        }
        COVERAGE_INC(ipoib_mcast_bad_record);
    }
    mcast_join_failed(group);
}
