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
#include "ipoib-ah.h"

#include <errno.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_ah);

COVERAGE_DEFINE(ipoib_ah_destroyed);

/* An AH that waits for its end. */
struct ah_grave {
    struct ovs_list node;       /* In ipoib_ah_reaper's 'graves'. */
    struct ibv_ah *ah;
    long long int retired;
    atomic_llong graced;        /* When the grace period was over, or 0. */
    struct ovs_refcount ref_cnt; /* The reaper's, and RCU's. */
};

/* An AH that is in use, once or more. */
struct shared_ah {
    struct hmap_node by_attr;   /* In ipoib_ah_reaper, by 'attr'. */
    struct hmap_node by_ah;     /* In ipoib_ah_reaper, by 'ah'. */
    struct ibv_ah *ah;
    struct ibv_pd *pd;
    struct ibv_ah_attr attr;    /* Without GRH fields that do not count. */
    unsigned int n_users;
};

struct ipoib_ah_reaper {
    const struct ipoib_verbs *verbs;
    struct ovs_list graves;     /* Oldest first. */
    struct hmap by_attr;        /* Of struct shared_ah. */
    struct hmap by_ah;          /* The same. */
};

static void
ah_grave_unref(struct ah_grave *grave)
{
    if (ovs_refcount_unref(&grave->ref_cnt) == 1) {
        free(grave);
    }
}

static void
ah_grave_graced(struct ah_grave *grave)
{
    atomic_store_explicit(&grave->graced, MAX(time_msec(), 1),
                          memory_order_release);
    ah_grave_unref(grave);
}

struct ipoib_ah_reaper *
ipoib_ah_reaper_create(const struct ipoib_verbs *verbs)
{
    struct ipoib_ah_reaper *reaper = xzalloc(sizeof *reaper);

    reaper->verbs = verbs;
    ovs_list_init(&reaper->graves);
    hmap_init(&reaper->by_attr);
    hmap_init(&reaper->by_ah);
    return reaper;
}

static void
ah_destroy(struct ipoib_ah_reaper *reaper, struct ah_grave *grave)
{
    int error = reaper->verbs->destroy_ah(grave->ah);

    if (error) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "failed to destroy an address handle (%s)",
                     ovs_strerror(error));
    }
    COVERAGE_INC(ipoib_ah_destroyed);
    ovs_list_remove(&grave->node);
    ah_grave_unref(grave);
}

void
ipoib_ah_reaper_destroy(struct ipoib_ah_reaper *reaper)
{
    struct ah_grave *grave;

    if (!reaper) {
        return;
    }
    LIST_FOR_EACH_SAFE (grave, node, &reaper->graves) {
        ah_destroy(reaper, grave);
    }
    ovs_assert(hmap_is_empty(&reaper->by_ah));
    hmap_destroy(&reaper->by_attr);
    hmap_destroy(&reaper->by_ah);
    free(reaper);
}


/* AHs in use. */

static uint32_t
attr_hash(const struct ibv_ah_attr *attr)
{
    return hash_bytes(attr, sizeof *attr, 0);
}

static struct shared_ah *
shared_find(const struct ipoib_ah_reaper *reaper, const struct ibv_pd *pd,
            const struct ibv_ah_attr *attr)
{
    struct shared_ah *shared;

    HMAP_FOR_EACH_WITH_HASH (shared, by_attr, attr_hash(attr),
                             &reaper->by_attr) {
        if (shared->pd == pd && !memcmp(&shared->attr, attr, sizeof *attr)) {
            return shared;
        }
    }
    return NULL;
}

struct ibv_ah *
ipoib_ah_get(struct ipoib_ah_reaper *reaper, struct ibv_pd *pd,
             const struct ibv_ah_attr *attr)
{
    struct ibv_ah_attr key = *attr, copy = *attr;
    struct shared_ah *shared;
    struct ibv_ah *ah;

    if (!key.is_global) {
        memset(&key.grh, 0, sizeof key.grh);
    }
    shared = shared_find(reaper, pd, &key);
    if (shared) {
        shared->n_users++;
        return shared->ah;
    }
    ah = reaper->verbs->create_ah(pd, &copy);
    if (ah) {
        shared = xmalloc(sizeof *shared);
        shared->ah = ah;
        shared->pd = pd;
        shared->attr = key;
        shared->n_users = 1;
        hmap_insert(&reaper->by_attr, &shared->by_attr, attr_hash(&key));
        hmap_insert(&reaper->by_ah, &shared->by_ah, hash_pointer(ah, 0));
    }
    return ah;
}

size_t
ipoib_ah_count(const struct ipoib_ah_reaper *reaper)
{
    return hmap_count(&reaper->by_ah);
}

/* One user of 'ah' less.  Returns true if somebody else still uses it. */
static bool
shared_unref(struct ipoib_ah_reaper *reaper, const struct ibv_ah *ah)
{
    struct shared_ah *shared;

    HMAP_FOR_EACH_WITH_HASH (shared, by_ah, hash_pointer(ah, 0),
                             &reaper->by_ah) {
        if (shared->ah == ah) {
            if (--shared->n_users) {
                return true;
            }
            hmap_remove(&reaper->by_attr, &shared->by_attr);
            hmap_remove(&reaper->by_ah, &shared->by_ah);
            free(shared);
            break;
        }
    }
    return false;
}


/* Their end. */

void
ipoib_ah_retire(struct ipoib_ah_reaper *reaper, struct ibv_ah *ah)
{
    struct ah_grave *grave;

    if (!ah || shared_unref(reaper, ah)) {
        return;
    }
    grave = xzalloc(sizeof *grave);
    grave->ah = ah;
    grave->retired = time_msec();
    atomic_init(&grave->graced, 0);
    ovs_refcount_init(&grave->ref_cnt);
    ovs_refcount_ref(&grave->ref_cnt);
    ovs_list_push_back(&reaper->graves, &grave->node);
    ovsrcu_postpone(ah_grave_graced, grave);
}

/* When 'grave' may be destroyed: IPOIB_AH_REST after the data path posted to
 * it for the last time, that is, after the grace period.  LLONG_MAX: the grace
 * period is not over. */
static long long int
ah_grave_due(const struct ah_grave *grave_)
{
    struct ah_grave *grave = CONST_CAST(struct ah_grave *, grave_);
    long long int graced;

    atomic_read_explicit(&grave->graced, &graced, memory_order_acquire);
    return graced ? graced + IPOIB_AH_REST : LLONG_MAX;
}

void
ipoib_ah_reaper_run(struct ipoib_ah_reaper *reaper, long long int now)
{
    struct ah_grave *grave;

    LIST_FOR_EACH_SAFE (grave, node, &reaper->graves) {
        if (now < ah_grave_due(grave)) {
            break;
        }
        ah_destroy(reaper, grave);
    }
}

void
ipoib_ah_reaper_wait(struct ipoib_ah_reaper *reaper)
{
    if (!ovs_list_is_empty(&reaper->graves)) {
        struct ah_grave *grave = CONTAINER_OF(ovs_list_front(&reaper->graves),
                                              struct ah_grave, node);
        long long int due = ah_grave_due(grave);

        if (due == LLONG_MAX) {
            due = MAX(grave->retired + IPOIB_AH_REST, time_msec() + 100);
        }
        poll_timer_wait_until(due);
    }
}
