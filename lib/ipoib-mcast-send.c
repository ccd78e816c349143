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

#include <stdlib.h>

#include "coverage.h"
#include "hash.h"
#include "timeval.h"

COVERAGE_DEFINE(ipoib_mcast_send_refused);
COVERAGE_DEFINE(ipoib_mcast_send_evicted);

/* Groups that are joined for a sender: each sender has a limit, all of them
 * together have one, and one that has few groups gets one of those of the
 * sender that has most.  So nobody can keep others from sending, however many
 * groups it sends to. */

/* A group that was sent to within this time, in seconds, is not taken from its
 * sender for another one of the same. */
#define SEND_BUSY 10

/* Pause between two searches for groups to do without, in ms. */
#define RELEASE_PAUSE 1000

struct ipoib_mcast_sender {
    struct hmap_node node;      /* In ipoib_mcast 'senders', by 'id'. */
    uint32_t id;
    size_t n;
    struct ovs_list groups;     /* Of struct ipoib_mcast_group. */
};

static struct ipoib_mcast_sender *
sender_find(const struct ipoib_mcast *mcast, uint32_t id)
{
    struct ipoib_mcast_sender *sender;

    HMAP_FOR_EACH_WITH_HASH (sender, node, hash_int(id, 0), &mcast->senders) {
        if (sender->id == id) {
            return sender;
        }
    }
    return NULL;
}

static void
sender_add(struct ipoib_mcast *mcast, uint32_t id,
           struct ipoib_mcast_group *group)
{
    struct ipoib_mcast_sender *sender = sender_find(mcast, id);

    if (!sender) {
        sender = xzalloc(sizeof *sender);
        sender->id = id;
        ovs_list_init(&sender->groups);
        hmap_insert(&mcast->senders, &sender->node, hash_int(id, 0));
    }
    group->sender = sender;
    ovs_list_push_back(&sender->groups, &group->sender_node);
    sender->n++;
    mcast->n_send++;
}

void
ipoib_mcast_drop_send(struct ipoib_mcast_group *group)
{
    struct ipoib_mcast_sender *sender = group->sender;

    group->want &= ~IPOIB_MCAST_SEND;
    if (sender) {
        ovs_list_remove(&group->sender_node);
        group->sender = NULL;
        group->mcast->n_send--;
        if (!--sender->n) {
            hmap_remove(&group->mcast->senders, &sender->node);
            free(sender);
        }
    }
}

/* When 'group' was last sent to, in seconds. */
static long long int
group_used(const struct ipoib_mcast_group *group)
{
    uint32_t used;

    atomic_read_relaxed(&ipoib_mcast_fast(group->mcast, group->slot)->used,
                        &used);
    return used;
}

/* The group of 'sender' that was not sent to for longest. */
static struct ipoib_mcast_group *
sender_idlest(const struct ipoib_mcast_sender *sender)
{
    struct ipoib_mcast_group *group, *idlest = NULL;
    long long int since = LLONG_MAX;

    LIST_FOR_EACH (group, sender_node, &sender->groups) {
        long long int used = group_used(group);

        if (used < since) {
            since = used;
            idlest = group;
        }
    }
    return idlest;
}

static struct ipoib_mcast_sender *
sender_largest(const struct ipoib_mcast *mcast)
{
    struct ipoib_mcast_sender *sender, *largest = NULL;

    HMAP_FOR_EACH (sender, node, &mcast->senders) {
        if (!largest || sender->n > largest->n) {
            largest = sender;
        }
    }
    return largest;
}

/* Makes room for one more group of the sender 'id'.  Returns false if there is
 * none for it. */
static bool
send_make_room(struct ipoib_mcast *mcast, uint32_t id)
{
    const struct ipoib_mcast_sender *sender = sender_find(mcast, id);
    struct ipoib_mcast_group *victim = NULL;
    size_t n = sender ? sender->n : 0;

    if (n >= mcast->limits.host_groups) {
        victim = sender_idlest(sender);
        if (ipoib_mcast_now(mcast) / 1000 < group_used(victim) + SEND_BUSY) {
            victim = NULL;
        }
    } else if (mcast->n_send >= mcast->limits.groups / 2
               || hmap_count(&mcast->groups) >= mcast->limits.groups) {
        sender = sender_largest(mcast);
        if (sender && sender->n > n + 1) {
            victim = sender_idlest(sender);
        }
    } else {
        return true;
    }
    if (!victim) {
        return false;
    }
    COVERAGE_INC(ipoib_mcast_send_evicted);
    ipoib_mcast_drop_send(victim);
    ipoib_mcast_enqueue(victim);
    return true;
}

struct ipoib_mcast_group *
ipoib_mcast_want_send(struct ipoib_mcast *mcast, const struct ib_gid *mgid,
                      uint32_t sender)
{
    struct ipoib_mcast_group *group = ipoib_mcast_find(mcast, mgid);

    if (group && group->want) {
        /* It costs nothing. */
        return ipoib_mcast_want(mcast, mgid, IPOIB_MCAST_SEND);
    }
    if (!send_make_room(mcast, sender)) {
        COVERAGE_INC(ipoib_mcast_send_refused);
        mcast->n_send_refused++;
        return NULL;
    }
    group = ipoib_mcast_want(mcast, mgid, IPOIB_MCAST_SEND);
    if (group) {
        sender_add(mcast, sender, group);
    }
    return group;
}

/* The SA has no room for a group: does without those that are only sent to,
 * and were not of late. */
void
ipoib_mcast_release_idle(struct ipoib_mcast *mcast)
{
    long long int now = ipoib_mcast_now(mcast);
    struct ipoib_mcast_group *group;

    if (now < mcast->next_release) {
        return;
    }
    mcast->next_release = now + RELEASE_PAUSE;
    HMAP_FOR_EACH (group, node, &mcast->groups) {
        if (group->sender && now / 1000 >= group_used(group) + SEND_BUSY) {
            COVERAGE_INC(ipoib_mcast_send_evicted);
            ipoib_mcast_drop_send(group);
            ipoib_mcast_enqueue(group);
        }
    }
}

void
ipoib_mcast_set_limits(struct ipoib_mcast *mcast,
                       const struct ipoib_mcast_limits *limits)
{
    mcast->limits = *limits;
    mcast->limits.groups = MIN(limits->groups, IPOIB_MCAST_MAX);
}

void
ipoib_mcast_get_stats(const struct ipoib_mcast *mcast,
                      struct ipoib_mcast_stats *stats)
{
    *stats = (struct ipoib_mcast_stats) {
        .n_groups = hmap_count(&mcast->groups),
        .n_send = mcast->n_send,
        .n_router = mcast->n_router,
        .n_send_refused = mcast->n_send_refused,
        .n_router_refused = mcast->n_router_refused,
    };
}
