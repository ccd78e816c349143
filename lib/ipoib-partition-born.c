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
#include "ipoib-partition-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "coverage.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_partition_born);

COVERAGE_DEFINE(ipoib_born_created);
COVERAGE_DEFINE(ipoib_born_deleted);
COVERAGE_DEFINE(ipoib_born_foreign);

/* Groups that are born on the fabric (RFC 4391, 11).
 *
 * A multicast router on the Ethernet side wants to hear what stations on the
 * fabric send to any group, so that it can forward that.  As long as there is
 * one, all IP groups of the partition that the SA knows are joined, as a
 * non-member, which does not keep them alive: those that its table has, and
 * those that it reports later.
 *
 * Groups of link scope are left out: what is sent to them is not forwarded,
 * and solicited-node groups are many. */

#define TABLE_BACKOFF_MAX 64    /* Seconds, after 1, 2, 4 ... */

/* True if 'mgid' is that of an IP group of 'part' that a router forwards. */
static bool
born_is_wanted(const struct ipoib_partition *part, const struct ib_gid *mgid)
{
    static const uint8_t solicited[] = { 0, 0, 0, 0, 0, 1, 0xff };
    static const uint8_t zeros[14];
    const uint8_t *raw = mgid->raw;
    bool v4 = raw[2] == 0x40, v6 = raw[2] == 0x60;

    if (raw[0] != 0xff || raw[1] != (0x10 | part->shared.scope)
        || !(v4 || v6) || raw[3] != 0x1b
        || ((raw[4] << 8 | raw[5]) | IB_PKEY_FULL) != part->pkey) {
        return false;
    }
    if (v4) {
        /* 28 bits of the group, which is not in 224.0.0.0/24.  (This leaves
         * out the broadcast group.) */
        return (!memcmp(raw + 6, zeros, 6) && !(raw[12] & 0xf0)
                && (raw[12] || raw[13] || raw[14]));
    }
    /* The scope of an IPv6 group is not in its MGID.  Those with small numbers
     * that hosts do not report are joined anyhow. */
    return memcmp(raw + 6, solicited, sizeof solicited) != 0;
}

static void
born_want(struct ipoib_partition *part, const struct ib_gid *mgid)
{
    struct ipoib_mcast_group *group;

    group = ipoib_mcast_want(part->shared.mcast, mgid, IPOIB_MCAST_ROUTER);
    if (group) {
        group->router_gen = part->born.gen;
    }
}


/* The groups that are no longer there, or none wanted. */

struct born_sweep {
    bool all;                   /* Or those that are older than */
    unsigned int gen;           /* this. */
    struct ib_gid *mgids;
    size_t n, allocated;
};

static void
born_sweep_one(const struct ipoib_mcast_group *group, void *sweep_)
{
    struct born_sweep *sweep = sweep_;

    if (group->want & IPOIB_MCAST_ROUTER
        && (sweep->all || group->router_gen != sweep->gen)) {
        if (sweep->n >= sweep->allocated) {
            sweep->mgids = x2nrealloc(sweep->mgids, &sweep->allocated,
                                      sizeof *sweep->mgids);
        }
        sweep->mgids[sweep->n++] = group->mgid;
    }
}

static void
born_sweep(struct ipoib_partition *part, bool all)
{
    struct born_sweep sweep = { .all = all, .gen = part->born.gen };

    ipoib_mcast_for_each(part->shared.mcast, born_sweep_one, &sweep);
    for (size_t i = 0; i < sweep.n; i++) {
        ipoib_mcast_unwant_router(part->shared.mcast, &sweep.mgids[i]);
    }
    free(sweep.mgids);
}


/* The SA's table of groups. */

static void
born_table_answer(void *part_, int error, uint16_t status,
                  const uint8_t *records, size_t n, size_t size)
{
    struct ipoib_partition *part = part_;
    size_t n_wanted = 0;

    part->born.request = NULL;
    for (size_t i = 0; size >= IB_GID_LEN && i < n; i++) {
        struct ib_gid mgid;

        memcpy(&mgid, records + i * size, sizeof mgid);
        if (born_is_wanted(part, &mgid)) {
            born_want(part, &mgid);
            n_wanted++;
        }
    }
    if (!error && (!status || status == IB_SA_NO_RECORDS)) {
        part->born.backoff = 0;
        part->born.next_try = LLONG_MAX;
        born_sweep(part, false);
        VLOG_DBG("%s: the subnet administrator has %"PRIuSIZE" groups, "
                 "%"PRIuSIZE" for a multicast router", part->name, n,
                 n_wanted);
        return;
    }
    part->born.backoff = (part->born.backoff
                          ? MIN(part->born.backoff * 2, TABLE_BACKOFF_MAX)
                          : 1);
    part->born.next_try = time_msec() + part->born.backoff * 1000LL;
    if (part->born.backoff == 4) {
        VLOG_INFO("%s: the subnet administrator does not tell all its groups "
                  "(%s): a multicast router on Ethernet hears only of those "
                  "that are created from now on", part->name,
                  error ? ovs_strerror(error)
                  : ib_sa_status_to_string(status));
    }
}

static void
born_ask_table(struct ipoib_partition *part)
{
    struct ib_mcmember_record rec;

    memset(&rec, 0, sizeof rec);
    rec.pkey = htons(part->pkey);
    ipoib_sa_cancel(part->port->sa, part->born.request);
    part->born.gen++;
    part->born.request = ipoib_sa_send_get_table(
        part->port->sa, IB_ATTR_MCMEMBER_RECORD, IB_MCM_PKEY, &rec, sizeof rec,
        born_table_answer, part);
}

void
ipoib_partition_born_trap(struct ipoib_partition *part, uint16_t trap,
                          const struct ib_gid *mgid)
{
    if (!trap) {
        part->born.backoff = 0;
        born_ask_table(part);
    } else if (!born_is_wanted(part, mgid)) {
        COVERAGE_INC(ipoib_born_foreign);
    } else if (trap == IB_TRAP_GROUP_CREATED) {
        COVERAGE_INC(ipoib_born_created);
        born_want(part, mgid);
    } else {
        COVERAGE_INC(ipoib_born_deleted);
        ipoib_mcast_unwant_router(part->shared.mcast, mgid);
    }
}


/* Whether there is a router. */

bool
ipoib_partition_has_router(const struct ipoib_partition *part)
{
    return part->born.router;
}

static void
born_set_router(struct ipoib_partition *part, bool router)
{
    part->born.router = router;
    ipoib_event_add(&part->events, part->name, IPOIB_EVENT_GROUP, router
                    ? "multicast router on Ethernet: joins the groups of the "
                      "fabric"
                    : "no multicast router on Ethernet: leaves the groups of "
                      "the fabric that no host reports");
    ipoib_hca_port_want_traps(part->port, &part->client, router);
    if (!router) {
        ipoib_sa_cancel(part->port->sa, part->born.request);
        part->born.request = NULL;
        part->born.next_try = LLONG_MAX;
        born_sweep(part, true);
    }
}

void
ipoib_partition_born_init(struct ipoib_partition *part)
{
    part->born.next_try = LLONG_MAX;
}

void
ipoib_partition_born_destroy(struct ipoib_partition *part)
{
    ipoib_sa_cancel(part->port->sa, part->born.request);
    part->born.request = NULL;
}

void
ipoib_partition_born_run(struct ipoib_partition *part, long long int now)
{
    enum ipoib_mcast_router option = part->config.mcast_router;
    bool router = (option == IPOIB_ROUTER_ALWAYS
                   || (option == IPOIB_ROUTER_AUTO
                       && ipoib_snoop_has_router(part->snoop, now)));

    if (router != part->born.router) {
        born_set_router(part, router);
    }
    if (now >= part->born.next_try && !part->born.request) {
        born_ask_table(part);
    }
}

void
ipoib_partition_born_wait(const struct ipoib_partition *part)
{
    /* A router goes in seconds, with the next slice of aging. */
    if (part->born.next_try != LLONG_MAX && !part->born.request) {
        poll_timer_wait_until(part->born.next_try);
    }
}
